"""Tasks handed out to processes on this machine, by the one process that keeps what they make.

Each process starts by itself (spawn) and is told what to do through a pipe of its own. One that dies is replaced, and its task
is tried once more; nothing is kept of a task but what was sent back whole.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from rlab.errors import InputError, Notice, VictimError

Agree = Callable[[], None]  # returns when the owner of the folder agrees that something is written
Work = Callable[[Any, Agree], Any]  # does a task
Tasks = Mapping[str, Callable[[], Any]]  # by their keys, made when they are handed out
Made = Generator[tuple[str, Any]]  # what workers made of tasks, as each is finished
HandOut = Callable[[Tasks, Callable[[str], None]], Made]  # see `hand_out`, which has workers to do it
_TRIES = 2  # how often a task is begun whose worker died


@dataclass(frozen=True)
class Start:
    """A worker's beginning: `make(*arguments)` gives its `Work`; both go to another process, so by names and plain values."""

    name: str  # as sentences call the worker
    make: Callable[..., Work]
    arguments: tuple[Any, ...]


@dataclass
class Worker:
    start: Start
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    task: str | None = None


def hand_out(starts: Sequence[Start], tasks: Tasks, agree: Callable[[str], None]) -> Made:
    """What the workers made of the tasks, as each is finished; `agree` is called before a task's worker writes anything.

    A task is made by its function when it is handed out, so that no more of them are in memory than there are workers.
    """
    waiting, died, workers = deque(tasks), Counter[str](), list[Worker]()
    try:
        workers += [_begin(start) for start in starts[: len(tasks)]]
        left = len(tasks)
        while left:
            for pipe in wait([worker.pipe for worker in workers]):
                worker = next(each for each in workers if each.pipe is pipe)
                try:
                    word, value = pickle.loads(worker.pipe.recv_bytes())
                except (EOFError, ConnectionError):
                    workers[workers.index(worker)] = _replaced(worker, died)
                    if worker.task is not None:
                        waiting.appendleft(worker.task)
                    continue
                if word == "failed":
                    raise value if worker.ready else InputError(f"{worker.start.name} cannot start: {value}")
                if word == "found":
                    assert worker.task is not None
                    agree(worker.task)
                    _send(worker, None)
                    continue
                if word == "done":
                    assert worker.task is not None
                    yield worker.task, value
                    left -= 1
                worker.ready, worker.task = True, None
                if waiting:
                    worker.task = waiting.popleft()
                    _send(worker, tasks[worker.task]())
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _begin(start: Start) -> Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    resource_tracker.ensure_running()  # which would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the owner, who ends the workers
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")  # else it would run there again
    try:
        process.start()
    finally:
        sys.modules["__main__"] = script
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    worker = Worker(start, process, ours)
    _send(worker, start)
    return worker


def _replaced(worker: Worker, died: Counter[str]) -> Worker:
    """Another process for one that ended; VictimError where that is of no use."""
    worker.process.join()
    worker.pipe.close()
    code = worker.process.exitcode or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if not worker.ready:
        raise VictimError(f"{worker.start.name} {how} before it was ready: it may lack memory; take fewer workers")
    if worker.task is not None:
        died[worker.task] += 1
        if died[worker.task] == _TRIES:
            raise VictimError(
                f"{worker.start.name} {how} at {worker.task}, as another had at the same: the model may end its process or "
                "lack memory; the same command with fewer workers goes on"
            )
    return _begin(worker.start)


def _send(worker: Worker, message: Any) -> None:
    whole = packed(message)
    with suppress(ConnectionError):  # it has ended, which the next look at its pipe tells
        worker.pipe.send_bytes(whole)


def packed(message: Any) -> bytes:
    """Whole bytes: torch would otherwise share memory between the processes, which a worker's death leaves behind."""
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"workers take models, filters and policies by name, not as objects in memory: {error}"
        ) from error


def _serve(pipe: Connection) -> None:
    """A worker's life: ends when nobody is there to hear of it."""
    be_quiet()

    def tell(word: str, value: Any = None) -> None:
        pipe.send_bytes(pickle.dumps((word, value)))

    def agreed() -> None:
        tell("found")
        pipe.recv_bytes()

    try:
        start: Start = pickle.loads(pipe.recv_bytes())
        work = start.make(*start.arguments)
        tell("ready")
        while True:
            tell("done", work(pickle.loads(pipe.recv_bytes()), agreed))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        tell("failed", portable(error))


def be_quiet() -> None:
    """For a worker."""
    warnings.simplefilter("ignore", Notice)  # the owner has told
    sys.stdout = sys.stderr  # what a model prints is no result


def portable(error: Exception) -> Exception:
    """The error, or where it cannot travel one with its sentence."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        kind = InputError if isinstance(error, ImportError) else RuntimeError
        return kind(f"{error}" if kind is InputError else f"{type(error).__name__}: {error}")
