"""Commands that are killed at any access to the file system.

After a kill nothing runs, not even clean-up: from that moment on every access to the file system fails.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from rlab.benchmarking import Benchmark
from rlab.errors import InputError
from rlab.hardening.run import harden
from rlab.learning.simulator import FILE
from rlab.progress import quiet
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.learn import learn
from rlab.runs.options import make_attack
from rlab.storage.config import check
from rlab.storage.ledger import one_sentence
from rlab.storage.lock import held_locks
from rlab.storage.resume import Resume
from rlab.training.directions import PriorOptions, train
from tests.auditing.cases import audit_options, declared, undrawn
from tests.benchmarking.cases import Case as BenchmarkCase
from tests.hardening.toys import options as harden_options
from tests.hardening.toys import shortcut
from tests.helpers import PALETTE, PATCHES, exact_victim, fields_of, labelled_by, make_batch
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

    def touch(self, ledger: bool = False) -> None:
        self.count += 1
        if self.folder is not None and self.at and (self.at == self.count or (self.at < self.count and not self.once)):
            if ledger and isinstance(self.raised, OSError):
                raise sqlite3.OperationalError("database or disk is full")
            raise self.raised


TROUBLE = Trouble()


@contextmanager
def trouble(folder: Path, at: int = 0, raised: BaseException | None = None, once: bool = False) -> Iterator[Trouble]:
    """Raise `raised` (default: a kill) from the `at`-th access to the folder on, and release the locks at the end."""
    TROUBLE.folder, TROUBLE.count, TROUBLE.at, TROUBLE.raised = str(folder), 0, at, raised or Killed()
    TROUBLE.once = once
    write, sync = Resume.write_ledger, os.fsync

    def syncing(number: int) -> None:
        try:
            TROUBLE.touch()
        except BaseException:
            os.ftruncate(number, os.fstat(number).st_size // 2)
            raise
        sync(number)

    def writing(self: Resume, query: str, *values: Any) -> None:
        with one_sentence(self.folder):
            TROUBLE.touch(ledger=True)
        write(self, query, *values)

    try:
        with mock.patch.object(Resume, "write_ledger", writing), mock.patch.object(os, "fsync", syncing):
            yield TROUBLE
    finally:
        TROUBLE.folder = None
        for file in held_locks().values():
            os.close(file)
        held_locks().clear()


@dataclass(frozen=True)
class Command:
    """A command that resumes; `outcome` must be the same in the end, bit by bit."""

    run: Callable[[Path], object]
    outcome: Callable[[Path], Any]


@cache
def _attacked() -> tuple[Any, ...]:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 5), wrong=(1,))
    return make_attack(batch, patch=PATCHES[2], palette=PALETTE, budget=8, chunk=2, policy="random"), victim, batch


def _attack(folder: Path) -> object:
    attack, victim, batch = _attacked()
    return run_attack(attack, victim, batch, folder, {"model": {"name": "exact"}})


def _stages_outcome(folder: Path) -> Any:
    students = [path.read_bytes() for path in sorted((folder / "stages").iterdir())]
    return students, {name: str(value) for name, value in fields_of(AttackResult.load(folder)).items()}


def _train(folder: Path) -> object:
    """With a clock that ticks at every call, so that the same number of steps fits into the minutes each time."""
    victim, batch = shortcut(2, n=8).victim, shortcut(2, n=8).batch
    options = check(
        PriorOptions,
        {"models": ["toy"], "data": "toy", "palettes": [PALETTE], "entries": 2, "patches": [list(PATCHES[2])],
         "minutes": 0.1, "validation_interval": 9, "validation_samples": 4, "budget": 5, "heads": 1, "prior_width": 8,
         "prior_levels": 1, "prior": {"batch": 4}},
    )  # fmt: skip
    with mock.patch("rlab.training.directions.time", mock.Mock(monotonic=iter(range(10**6)).__next__)):
        return train([victim], batch, None, options, folder)


def _benchmark(form: str) -> Callable[[Path], object]:
    case = BenchmarkCase(2, 4)
    return lambda folder: case.make(
        folder, format=form, chunk=2, policy="random", budget=12, steps=3, ladder="times:1.5"
    )


def _benchmark_outcome(folder: Path) -> Any:
    benchmark = Benchmark.load(folder)
    return benchmark.manifest.hash, benchmark.read(benchmark.originals()).tolist()


def _harden(folder: Path) -> object:
    toy = shortcut(2, n=16)
    chosen = harden_options(2, epochs=2, adversary_budget=3, mode="rounds", batch_size=16)
    return harden(toy.victim, toy.batch, validation=toy.test, out=folder, progress=quiet, **chosen).save(folder)


def _audit(folder: Path) -> object:
    from rlab.auditing import run_audit

    small = {
        "policy": "random",
        "budget": 12,
        "explain": {"methods": ["middle"], "samples": 1, "steps": 2, "checks": False},
    }
    with undrawn():
        return run_audit(audit_options(declared(**small)), folder)


def _audit_outcome(folder: Path) -> Any:
    """Everything except durations and how often a stage was begun."""
    record = json.loads((folder / "audit.json").read_text())
    for stage in record["stages"].values():
        del stage["seconds"], stage["begun"]
    record["figures"].get("attack", {}).pop("seconds", None)
    return record


def _learn(folder: Path) -> object:
    with small_students(steps=1):
        return learn(exact_victim(1), make_batch(1, 32), queries=70, palette=PALETTE, patch=PATCHES[1], out=folder)


COMMANDS = {
    "learn": Command(_learn, lambda folder: (folder / FILE).read_bytes()),
    "attack": Command(_attack, lambda folder: {k: str(v) for k, v in fields_of(AttackResult.load(folder)).items()}),
    "stages": Command(staged_run, _stages_outcome),
    "train": Command(_train, lambda folder: (folder / "prior.safetensors").read_bytes()),
    "benchmark png": Command(_benchmark("png"), _benchmark_outcome),
    "benchmark npz": Command(_benchmark("npz"), _benchmark_outcome),
    "harden": Command(
        _harden, lambda folder: [(folder / n).read_bytes() for n in ("hardened.safetensors", "log.json")]
    ),
    "audit": Command(_audit, _audit_outcome),
}


@cache
def unbroken_root() -> Path:
    return Path(tempfile.mkdtemp(prefix="rlab-unbroken-"))


@cache
def unbroken(name: str) -> tuple[int, Any, list[str]]:
    """Return the number of accesses, the outcome, and the names of all files."""
    folder = unbroken_root() / name.replace(" ", "-")
    with trouble(folder) as counted:
        COMMANDS[name].run(folder)
        moments = counted.count
    return moments, COMMANDS[name].outcome(folder), names(folder)


def names(folder: Path) -> list[str]:
    """List all files, without the digests in the names of parts."""
    return sorted(path.relative_to(folder).as_posix().partition("-")[0] for path in folder.rglob("*"))


def disk_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "a file of the run")


FAULTS: dict[str, tuple[BaseException, bool]] = {  # what is raised, and whether only once
    "killed": (Killed(), False),
    "disk full": (disk_error(errno.ENOSPC), False),
    "disk full for a moment": (disk_error(errno.ENOSPC), True),
    "read-only": (disk_error(errno.EROFS), False),
    "input/output error": (disk_error(errno.EIO), True),
}


def faulty(name: str, fault: str, moment: int, folder: Path) -> str:
    """Let the fault happen at this moment of a command, then resume; return what is wrong, or an empty string."""
    command, (_, outcome, files) = COMMANDS[name], unbroken(name)
    raised, once = FAULTS[fault]
    try:
        with trouble(folder, moment, raised, once):
            command.run(folder)
    except Killed:
        pass
    except (InputError, OSError) as error:
        if "\n" in str(error):
            return f"more than one line: {error}"
    command.run(folder)
    if names(folder) != files:
        return f"other files: {sorted(set(names(folder)) ^ set(files))}"
    return "" if command.outcome(folder) == outcome else "another outcome"
