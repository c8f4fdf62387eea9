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

_PAUSE = 0.05  # seconds between two looks at the owner
_here = Remote()  # in a worker


class LocalCrew:
    """One process for each worker, so that each has its own device."""

    patience: float | None = None
    lost: tuple[type[Exception], ...] = (BrokenProcessPool,)

    def __init__(self) -> None:
        self.processes = list[ProcessPoolExecutor]()

    def send(self, number: int, message: bytes) -> Future[bytes]:
        if number == len(self.processes):
            self.processes.append(ProcessPoolExecutor(1, initializer=_watch, initargs=(os.getpid(),)))
        with _no_interrupt():  # the process starts with its first message
            future: Future[bytes] = self.processes[number].submit(_do, message)
        return future

    def why(self, error: Exception) -> str:
        codes = re.search(r"\{(.+)\}", str(error))
        return "its process was ended" + (f" by {codes[1]}" if codes else "")

    def close(self) -> None:
        for process in self.processes:
            process.shutdown(wait=True, kill_workers=True)


def _watch(owner: int) -> None:
    """In the worker, before its first message."""
    process_executor._USE_PSUTIL = False  # or a process that needs much memory for its model is restarted
    threading.Thread(target=_end_with, args=(owner,), daemon=True).start()


def _end_with(owner: int) -> None:
    """End this worker at once when its owner has died, even in the middle of a task: nobody would keep the result."""
    while os.getppid() == owner:
        time.sleep(_PAUSE)
    os._exit(1)


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
