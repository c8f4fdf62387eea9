"""Workers that load a model once and do one task after the other, wherever they run, and the loop that hands out the tasks."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

from rlab import __version__
from rlab.errors import InputError, Notice, OptionError, WorkerLost

Work = Callable[[Any], Any]  # does one task
Tasks = Iterator[tuple[str, Any]]  # by key; a task is built when a worker is free


@dataclass(frozen=True)
class Start:
    """How a worker begins, its first message: `make(*arguments)` returns its `Work`; all of it is pickled."""

    name: str  # as in error messages
    make: Callable[..., Work]
    arguments: tuple[Any, ...]
    version: str = __version__


class Remote:
    """The side of a worker where the model is. Messages and replies are bytes; a reply holds a value or an error."""

    work: Work

    def do(self, message: bytes) -> bytes:
        """Begin, or do a task."""
        try:
            given = pickle.loads(message)
            if not isinstance(given, Start):
                return pack(self.work(given))
            self._begin(given)
            return pack(None)
        except Exception as error:
            return pickle.dumps(_portable(error))

    def _begin(self, start: Start) -> None:
        warnings.simplefilter("ignore", Notice)  # the owner gives the notices
        sys.stdout = sys.stderr  # the owner's output holds the results
        if start.version != __version__:
            both = f"the worker has rlab {__version__} and this process {start.version}"
            raise InputError(f"{both}: install the same version")
        self.work = start.make(*start.arguments)


class Crew(Protocol):
    """Workers by number."""

    patience: float | None  # seconds until the first worker is ready; None: no limit
    lost: tuple[type[Exception], ...]  # errors that say that a worker or its machine is gone

    def send(self, number: int, message: bytes) -> Future[bytes]:
        """Send a message to a worker; the first message to the next number starts one more."""

    def why(self, error: Exception) -> str:
        """Say in a few words how a worker was lost."""

    def close(self) -> None:
        """End all workers at once."""


def hand_out(crew: Crew, starts: Sequence[Start], tasks: Tasks) -> Generator[Any]:
    """Yield the values of tasks as workers finish them. A worker that is lost ends the run."""
    first = list(islice(tasks, len(starts)))  # no more workers than tasks
    waiting, patience = chain(first, tasks), crew.patience
    with closing(crew):
        busy = {crew.send(number, pack(start)): (number, "") for number, start in enumerate(starts[: len(first)])}
        while busy:
            ended, _ = wait(busy, timeout=patience, return_when=FIRST_COMPLETED)
            if not ended:
                within = f"within {patience:.0f} s: check it with `ray status`"
                raise InputError(f"the cluster started none of {len(busy)} workers {within}")
            patience = None
            for future in ended:
                number, key = busy.pop(future)
                value = _value(crew, future, starts[number].name, key)
                if (task := next(waiting, None)) is not None:
                    busy[crew.send(number, pack(task[1]))] = number, task[0]
                if key:
                    yield value


def _value(crew: Crew, future: Future[bytes], name: str, key: str) -> Any:
    """What a worker replied; an error in the worker is raised here."""
    try:
        value = pickle.loads(future.result())
    except crew.lost as error:
        doing = f"at {key}" if key else "before it was ready"
        raise WorkerLost(
            f"{name} was lost {doing} ({crew.why(error)}): the model may end its process, or memory is short. Run the same "
            "command again to continue, perhaps with fewer workers"
        ) from error
    if not isinstance(value, Exception):
        return value
    raise value if key else InputError(f"{name} cannot start: {value}")


def pack(message: Any) -> bytes:
    """Pickle a message; torch would otherwise share memory between processes, which a killed worker leaves behind."""
    try:
        return pickle.dumps(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise OptionError(f"workers load everything by name, but this exists only in this process: {error}") from error


def _portable(error: Exception) -> Exception:
    """Return the error, or one with the same sentence if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        kind = InputError if isinstance(error, ImportError) else RuntimeError
        return kind(f"{error}" if kind is InputError else f"{type(error).__name__}: {error}")
