"""Processes on this machine that work on tasks; one process owns the results.

Each worker starts as a fresh process (spawn) and gets its tasks through a pipe. A worker that dies is replaced, and its task
runs once more; only complete results are kept.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType

from rlab.errors import VictimError
from rlab.runs import messages
from rlab.runs.messages import DONE, FAILED, READY, Finished, Start, TaskQueue, Tasks, Worker, pack

_TRIES = 2  # starts of a task whose workers die


@dataclass(eq=False, kw_only=True)
class Process(Worker):
    """A worker with its process and our end of its pipe."""

    process: BaseProcess
    pipe: Connection


def hand_out(starts: Sequence[Start], tasks: Tasks) -> Finished:
    """Yield keys and values of tasks as workers finish them."""
    queue, deaths, workers = TaskQueue(tasks), Counter[str](), list[Process]()
    try:
        workers += [_begin(start) for start in starts[: len(tasks)]]
        while queue.unfinished:
            for pipe in wait([worker.pipe for worker in workers]):
                worker = next(each for each in workers if each.pipe is pipe)
                try:
                    message = worker.pipe.recv_bytes()
                except (EOFError, ConnectionError):
                    workers[workers.index(worker)] = _replace(worker, deaths)
                    queue.take_back(worker)
                    continue
                kind, key, value = queue.read(worker, message)
                if kind == DONE:
                    yield key, value
                if task := queue.assign(worker):
                    _send(worker, task)
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _begin(start: Start) -> Process:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    resource_tracker.ensure_running()  # which would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the owner, who ends the workers
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")  # or the user's script runs again
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    worker = Process(start=start, process=process, pipe=ours)
    _send(worker, pack(start))
    return worker


def _replace(worker: Process, deaths: Counter[str]) -> Process:
    """Start another process for a worker that died; VictimError if that would not help."""
    worker.process.join()
    worker.pipe.close()
    code = worker.process.exitcode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if not worker.ready:
        raise VictimError(f"{worker.start.name} {how} before it was ready: memory may be short, so use fewer workers")
    if worker.task is not None:
        deaths[worker.task] += 1
        if deaths[worker.task] == _TRIES:
            raise VictimError(
                f"{worker.start.name} {how} at {worker.task}, like another worker before: the model may end its process, or "
                "memory is short. Run the same command with fewer workers to continue"
            )
    return _begin(worker.start)


def _send(worker: Process, message: bytes) -> None:
    with suppress(ConnectionError):  # the worker died, which reading from its pipe will show
        worker.pipe.send_bytes(message)


def _end_with_owner() -> None:
    """End this worker at once when its owner has died, even in the middle of a task: nobody would keep the result."""
    owner = multiprocessing.parent_process()
    assert owner is not None
    wait([owner.sentinel])
    os._exit(1)


def _serve(pipe: Connection) -> None:
    """Run in the worker until the owner closes the pipe or dies."""
    messages.be_quiet()
    threading.Thread(target=_end_with_owner, daemon=True).start()

    try:
        start: Start = pickle.loads(pipe.recv_bytes())
        work = start.make(*start.arguments)
        pipe.send_bytes(pickle.dumps((READY, None)))
        while True:
            pipe.send_bytes(pickle.dumps((DONE, work(pickle.loads(pipe.recv_bytes())))))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        pipe.send_bytes(pickle.dumps((FAILED, messages.portable(error))))
