"""Workers on this machine: processes of joblib's loky, one for each worker, which end with the process that owns the results."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from joblib.externals.loky import ProcessPoolExecutor, process_executor
from joblib.externals.loky.process_executor import BrokenProcessPool

from rlab.runs.worker import Remote

_WATCH = 0.05  # seconds between two looks at the owner
_here = Remote()  # in a worker
_ready = b""  # its reply to the first message


class LocalCrew:
    """One process for each worker, so that each has its own device."""

    patience: float | None = None
    lost: tuple[type[Exception], ...] = (BrokenProcessPool,)

    def __init__(self) -> None:
        self.processes = list[ProcessPoolExecutor]()

    def begin(self, message: bytes) -> Future[bytes]:
        process = ProcessPoolExecutor(1, initializer=_begin, initargs=(os.getpid(), message))
        self.processes.append(process)
        with _no_interrupt():
            future: Future[bytes] = process.submit(_reply)
        return future

    def do(self, number: int, message: bytes) -> Future[bytes]:
        future: Future[bytes] = self.processes[number].submit(_do, message)
        return future

    def why(self, error: Exception) -> str:
        codes = re.search(r"\{(.+)\}", str(error))
        return "its process was ended" + (f" by {codes[1]}" if codes else "")

    def close(self) -> None:
        for process in self.processes:
            process.shutdown(wait=True, kill_workers=True)


def _begin(owner: int, message: bytes) -> None:
    """In the worker: load the model; an error is the first reply."""
    global _ready
    process_executor._USE_PSUTIL = False  # or a process that needs much memory for its model is restarted
    threading.Thread(target=_end_with, args=(owner,), daemon=True).start()
    _ready = _here.begin(message)


def _end_with(owner: int) -> None:
    """End this worker at once when its owner has died, even in the middle of a task: nobody would keep the result."""
    while os.getppid() == owner:
        time.sleep(_WATCH)
    os._exit(1)


def _reply() -> bytes:
    return _ready


def _do(message: bytes) -> bytes:
    return _here.do(message)


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Processes that start here ignore Ctrl-C, which is for their owner: it ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
