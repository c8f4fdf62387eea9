"""What the process that owns the results and its workers send to each other, wherever the workers run."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from rlab.errors import InputError, Notice, OptionError

Work = Callable[[Any], Any]  # does one task
Tasks = Mapping[str, Callable[[], Any]]  # by key; a task is built when a worker gets it
Finished = Generator[tuple[str, Any]]  # keys and values of tasks, as each finishes
HandOut = Callable[[Tasks], Finished]  # `rlab.runs.pool.hand_out` with its workers bound
READY, DONE, FAILED = "ready", "done", "failed"  # kinds of replies


@dataclass(frozen=True)
class Start:
    """How a worker begins: `make(*arguments)` returns its `Work`; all of it is pickled."""

    name: str  # as in error messages
    make: Callable[..., Work]
    arguments: tuple[Any, ...]


@dataclass(eq=False, kw_only=True)
class Worker:
    """A worker as the owner of the results sees it."""

    start: Start
    ready: bool = False
    task: str | None = None


class TaskQueue:
    """The waiting tasks and the number of unfinished ones; only assigned tasks are in memory."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self._waiting, self.unfinished = tasks, deque(tasks), len(tasks)

    def assign(self, worker: Worker) -> bytes | None:
        """Assign the next task to an idle worker and return the message for it; None if there is nothing to assign."""
        if not worker.ready or worker.task is not None or not self._waiting:
            return None
        worker.task = self._waiting.popleft()
        return pack(self._tasks[worker.task]())

    def take_back(self, worker: Worker) -> None:
        """Put the task of a lost worker first in the queue."""
        if worker.task is not None:
            self._waiting.appendleft(worker.task)

    def read(self, worker: Worker, message: bytes) -> tuple[str, str, Any]:
        """Return the kind of a worker's message, its task and the value; note that it is idle, or raise its error."""
        kind, value = pickle.loads(message)
        if kind == FAILED:
            raise value if worker.ready else InputError(f"{worker.start.name} cannot start: {value}")
        key = worker.task or ""
        worker.ready, worker.task = True, None
        self.unfinished -= kind == DONE
        return kind, key, value


def pack(message: Any) -> bytes:
    """Pickle a message; torch would otherwise share memory between processes, which a killed worker leaves behind."""
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise OptionError(f"workers load everything by name, but this exists only in this process: {error}") from error


def pack_reply(kind: str, make: Callable[[], Any]) -> bytes:
    """In a worker: pack what `make` returns, or its error."""
    try:
        return pack((kind, make()))
    except Exception as error:
        return pickle.dumps((FAILED, portable(error)))


def portable(error: Exception) -> Exception:
    """Return the error, or one with the same sentence if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        kind = InputError if isinstance(error, ImportError) else RuntimeError
        return kind(f"{error}" if kind is InputError else f"{type(error).__name__}: {error}")


def be_quiet() -> None:
    """In a worker: leave notices to the owner and standard output to its results."""
    warnings.simplefilter("ignore", Notice)
    sys.stdout = sys.stderr
