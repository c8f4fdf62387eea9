"""Commands that are killed at any access to the file system.

After a kill nothing runs, not even clean-up: from that moment on every access to the file system fails.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from rlab.comparison.comparison import run_comparison
from rlab.comparison.options import CompareOptions
from rlab.errors import InputError, VictimError
from rlab.explanation.run import explain_batch
from rlab.hardening.run import harden
from rlab.progress import quiet
from rlab.runs.attack import run_attack
from rlab.runs.executor import Workers
from rlab.runs.learn import learn
from rlab.runs.options import AttackOptions, make_attack
from rlab.runs.sharing import WorkerOptions
from rlab.storage.config import check
from rlab.storage.lock import held_locks
from rlab.storage.run_file import RUN
from rlab.storage.steps import STEP
from rlab.training.directions import PriorOptions, train
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from tests.auditing.cases import audit_options, undrawn
from tests.auditing.cases import quick as small_audit
from tests.benchmarking.cases import Case as BenchmarkCase
from tests.hardening.toys import Toy, shortcut
from tests.hardening.toys import options as harden_options
from tests.helpers import PALETTE, PATCHES, exact_victim, labelled_by, make_batch
from tests.learning.toys import small_students
from tests.runs.staged import staged_run

_TOUCHES = {"os.rename": 1, "os.remove": 0, "os.mkdir": 0, "os.rmdir": 0}  # index of the path in the event's arguments
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """Not an Exception, so nothing catches it."""


class Trouble:
    """Counts accesses to files below `folder`; from the `at`-th on (0: never) each raises `raised`, with `once` only that one.

    A failing fsync leaves half of its file, as a short write or a loss of power does.
    """

    folder: str | None = None
    raised: BaseException = Killed()
    once = False
    of_workers = False  # count and raise only in processes that this one starts

    def __init__(self) -> None:
        self.count, self.at = 0, 0
        sys.addaudithook(self._hear)  # hooks cannot be removed

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or not (event == "open" or event in _TOUCHES):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
            return
        if self.is_full and event not in ("open", "os.mkdir"):
            return  # there is always room to remove something
        if str(arguments[_TOUCHES.get(event, 0)]).startswith(self.folder):
            self.touch()

    @property
    def is_full(self) -> bool:
        return isinstance(self.raised, OSError) and self.raised.errno == errno.ENOSPC

    def touch(self) -> None:
        if self.of_workers and multiprocessing.parent_process() is None:
            return
        self.count += 1
        if self.folder is not None and self.at and (self.at == self.count or (self.at < self.count and not self.once)):
            if isinstance(self.raised, Killed) and multiprocessing.parent_process() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.raised


TROUBLE = Trouble()


@contextmanager
def trouble(
    folder: Path, at: int = 0, raised: BaseException | None = None, once: bool = False, of_workers: bool = False
) -> Iterator[Trouble]:
    """Raise `raised` (default: a kill) from the `at`-th access to the folder on, and release the locks at the end."""
    TROUBLE.folder, TROUBLE.count, TROUBLE.at, TROUBLE.raised = str(folder), 0, at, raised or Killed()
    TROUBLE.once, TROUBLE.of_workers = once, of_workers
    sync = os.fsync

    def syncing(number: int) -> None:
        try:
            TROUBLE.touch()
        except BaseException:
            os.ftruncate(number, os.fstat(number).st_size // 2)
            raise
        sync(number)

    try:
        with mock.patch.object(os, "fsync", syncing):
            yield TROUBLE
    finally:
        TROUBLE.folder = None
        for lock in held_locks().values():
            lock.release(force=True)
        held_locks().clear()


@cache
def _attacked() -> tuple[Any, ...]:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 5), wrong=(1,))
    return make_attack(batch, patch=PATCHES[2], palette=PALETTE, budget=8, chunk=2, policy="random"), victim, batch


def _attack(folder: Path) -> object:
    attack, victim, batch = _attacked()
    return run_attack(attack, victim, batch, folder, {"model": {"name": "exact"}})


def exact() -> Victim:
    return exact_victim(2)


@contextmanager
def _forking() -> Iterator[None]:
    """Start workers as copies of this process, which takes no time and gives each of them the trouble of this process. They
    have one thread: OpenMP's other threads are not copied, and a worker would wait for them forever."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with mock.patch.object(multiprocessing, "get_context", return_value=multiprocessing.get_context("fork")):
            yield
    finally:
        torch.set_num_threads(threads)


def _share(folder: Path) -> object:
    """Two workers; the k-th access is that of the owner or of a worker, whichever comes to it."""
    _, victim, batch = _attacked()
    model = check(ModelOptions, {"name": f"{__name__}:exact"})
    values = {"patch": PATCHES[2], "palette": PALETTE, "budget": 8, "chunk": 2, "policy": "random"}
    workers = Workers.of(check(WorkerOptions, {"workers": 2}), model, victim)
    with _forking():
        return run_attack(
            check(AttackOptions, values), victim, batch, folder, {"model": model.plain()}, workers=workers
        )


def _explain(folder: Path) -> object:
    return explain_batch(exact_victim(2), make_batch(2, 2), "middle", progress=False).save(folder, pictures=1)


def _compare(folder: Path) -> object:
    _, victim, batch = _attacked()
    values = {
        "model": "exact",
        "data": "toy",
        "policies": ["random", "square"],
        "patch": PATCHES[2],
        "palette": PALETTE,
    }
    contenders = check(CompareOptions, values).contenders()
    return run_comparison(victim, batch, contenders, 8, folder=folder)


def _train(folder: Path) -> object:
    """By number of updates, with a clock that ticks at every call, so that a training that goes on logs the same times."""
    Toy.seen.clear()
    victim, batch = shortcut(2, n=8).victim, shortcut(2, n=8).batch
    options = check(
        PriorOptions,
        {"models": ["toy"], "data": "toy", "palettes": [PALETTE], "entries": 2, "patches": [list(PATCHES[2])],
         "updates": 6, "validations": 3, "validation_samples": 4, "budget": 5, "heads": 1, "prior_width": 8,
         "prior_levels": 1, "prior": {"batch": 4}},
    )  # fmt: skip
    with mock.patch("rlab.training.loop.time", mock.Mock(monotonic=iter(range(10**6)).__next__)):
        return train([victim], batch, None, options, folder)


def _benchmark(form: str) -> Callable[[Path], object]:
    case = BenchmarkCase(2, 4)
    return lambda folder: case.make(
        folder, format=form, chunk=2, policy="random", budget=12, steps=3, ladder="times:1.5"
    )


def _harden(folder: Path) -> object:
    Toy.seen.clear()  # a new process counts from 0
    toy = shortcut(2, n=16)
    chosen = harden_options(2, epochs=2, adversary_budget=3, training_batch=16)
    return harden(toy.victim, toy.batch, validation=toy.test, out=folder, progress=quiet, **chosen)


def _audit(folder: Path) -> object:
    """Doctor and attack; the other stages are commands of their own here."""
    from rlab.auditing import run_audit

    with undrawn():
        return run_audit(audit_options(small_audit(policy="random", budget=12)), folder)


def _learn(folder: Path) -> object:
    with small_students(steps=1):
        return learn(exact_victim(1), make_batch(1, 32), queries=70, palette=PALETTE, patch=PATCHES[1], out=folder)


COMMANDS: dict[str, Callable[[Path], object]] = {
    "learn": _learn,
    "attack": _attack,
    "two workers": _share,
    "stages": staged_run,
    "explain": _explain,
    "compare": _compare,
    "train": _train,
    "benchmark png": _benchmark("png"),
    "benchmark npz": _benchmark("npz"),
    "harden": _harden,
    "audit": _audit,
}
DIFFER = {RUN, "junit.xml"}  # files in which equal runs differ: what changed because it was used, and times


@cache
def unbroken_root() -> Path:
    return Path(tempfile.mkdtemp(prefix="rlab-unbroken-"))


@cache
def unbroken(name: str) -> tuple[int, dict[str, bytes]]:
    """Return the number of accesses, and the contents of the folder."""
    folder = unbroken_root() / name.replace(" ", "-")
    with trouble(folder) as counted:
        COMMANDS[name](folder)
        moments = counted.count
    return moments, contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and folder by name; files in which equal runs differ are as empty as folders, and so are steps with times."""
    found = dict[str, bytes]()
    for path in sorted(folder.rglob("*")):
        timed = path.name in DIFFER or (path.suffix == STEP and b"seconds" in path.read_bytes())
        found[path.relative_to(folder).as_posix()] = path.read_bytes() if path.is_file() and not timed else b""
    return found


def difference(name: str, folder: Path) -> list[str]:
    """The names of files that differ from those of an unbroken run."""
    mine, theirs = contents(folder), unbroken(name)[1]
    return sorted(file for file in mine.keys() | theirs.keys() if mine.get(file) != theirs.get(file))


def disk_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "a file of the run")


FAULTS: dict[str, tuple[BaseException, bool]] = {  # what is raised, and whether only once
    "killed": (Killed(), False),
    "disk full": (disk_error(errno.ENOSPC), False),
    "disk full for a moment": (disk_error(errno.ENOSPC), True),
    "read-only": (disk_error(errno.EROFS), False),
    "input/output error": (disk_error(errno.EIO), True),
}


def faulty(name: str, fault: str, moment: int, folder: Path, of_workers: bool = False) -> str:
    """Let the fault happen at this moment of a command, then resume; return what is wrong, or an empty string."""
    raised, once = FAULTS[fault]
    try:
        with trouble(folder, moment, raised, once, of_workers):
            COMMANDS[name](folder)
    except Killed:
        pass
    except (InputError, OSError, VictimError) as error:
        if "\n" in str(error):
            return f"more than one line: {error}"
    COMMANDS[name](folder)
    differs = difference(name, folder)
    return f"these files differ: {differs}" if differs else ""
