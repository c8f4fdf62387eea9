"""Continue after a stop: a step runs once, and running the same command again reads its value back.

    with open_run(folder, question) as resume:
        value = resume.step("chunk-00000064", fingerprint, make)

A folder belongs to the first command and configuration (its question, in `run.json`); any other is refused. A step is finished
when its file exists (`rlab.storage.steps`). A run that fails before its first finished step leaves only paid answers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from rlab.errors import FolderError, WorkerLost, give_notice
from rlab.storage.contents import Contents
from rlab.storage.journal import count_answers, journal_path
from rlab.storage.lock import LOCK, hold
from rlab.storage.names import CONFIG, refuse_strange
from rlab.storage.question import HINT, Question
from rlab.storage.run_file import (
    LEFTOVER,
    PARTS,
    RUN,
    RunFile,
    current_versions,
    file_digest,
    read_run,
    remove_leftovers,
)
from rlab.storage.steps import ARRAYS, Step, part_path, read_step, read_steps, step_path, step_paths, stored_step

Value = TypeVar("Value")
Mark = str | Contents  # what a step depends on
_BEFORE = "ledger.sqlite"  # what earlier versions wrote in place of `run.json`


@contextmanager
def open_run(folder: Path, question: Mapping[str, Any], paid: bool = False, **keeps: bool) -> Iterator[Resume]:
    """Open the finished steps of a folder that belongs to this question; lock it and remove half-written files.

    `paid`: whether answers may have cost money, and outlast an error; `keeps`: see `Resume`.
    """
    with hold(folder, str(question.get("command", ""))):
        resume = Resume(folder, question, **keeps)
        new = resume.run is None
        try:
            resume.clean()
            if new and (lost := resume.asked.lost()):
                give_notice(f"this run cannot be resumed, because a later run cannot recognise {lost}")
            yield resume
        except Exception as error:
            if new and not ((paid or isinstance(error, WorkerLost)) and count_answers(folder)):
                resume.forget()
            raise
        finally:
            resume.close()


class Resume:
    """The finished steps of one folder; `question` is the whole configuration.

    `parts`: whether the finished run keeps its arrays; `journals`: whether it keeps the journals of finished steps.
    """

    def __init__(self, folder: Path, question: Mapping[str, Any], parts: bool = True, journals: bool = False) -> None:
        self.folder, self.keeps_parts, self.keeps_journals = folder, parts, journals
        self.asked = Question(question)
        self.used, self.compared = False, False  # whether steps ran, and whether the versions were compared
        refuse_strange(folder)
        self.run: RunFile | None = read_run(folder)
        if self.run is None:
            self._refuse_filled()
        elif self._is_bare() and self.asked.differ(self.run.configuration):  # killed at the first step
            if lost := count_answers(folder):
                give_notice(f"{lost:,} answers of a stopped run of another configuration in {folder} are discarded")
            self.forget()
        else:
            self.asked.refuse_other(folder, self.run)
        self.begun = {} if self.run is None else self.run.versions  # those of the process that began the run

    def _refuse_filled(self) -> None:
        """Refuse a folder without `run.json` that holds anything else."""
        if (self.folder / _BEFORE).exists():
            raise FolderError(f"{self.folder} was begun by an earlier rlab: continue it with that version, or {HINT}")
        if self.folder.exists() and (not self.folder.is_dir() or self._names()):
            raise FolderError(f"{self.folder} exists and holds something else: {HINT}")

    def _names(self) -> set[str]:
        """The names in the folder, but for the lock and what a kill left of `run.json`."""
        names = {path.name for path in self.folder.iterdir()} - {LOCK}
        return {name for name in names if not (name.startswith(f"{RUN}.") and name.endswith(LEFTOVER))}

    def step(
        self, key: str, fingerprint: Mark, make: Callable[[], Value], stale: Literal["refuse", "remake"] = "refuse"
    ) -> Value:
        """Return the value stored under this key and fingerprint, or make it; `stale` is for another fingerprint."""
        stored = stored_step(self.folder, key)
        if stored is not None and _fits(fingerprint, stored):
            value: Value = stored.value
            return value
        if stale == "refuse":
            self.refuse_other(key, fingerprint)
        self.begin()
        value = make()
        self.record(key, fingerprint, value)
        return value

    def recall(self, key: str, fingerprint: Mark) -> Any | None:
        """Return the value recorded under this key and fingerprint, or None."""
        stored = stored_step(self.folder, key)
        return stored.value if stored is not None and _fits(fingerprint, stored) else None

    def refuse_other(self, key: str, fingerprint: Mark) -> None:
        stored = stored_step(self.folder, key)
        if stored is not None and not _fits(fingerprint, stored):
            raise FolderError(f"{self.folder} holds results of another configuration ({key} differs): {HINT}")

    def record(self, key: str, fingerprint: Mark, value: Any, part: bool = False) -> None:
        """Record a finished step, which replaces an earlier value; with `part`, the file `self.part(key)` belongs to it."""
        self.used = True
        self.create()
        mark = fingerprint.settled() if isinstance(fingerprint, Contents) else fingerprint
        arrays = file_digest(self.part(key)) if part else None
        Step(fingerprint=mark, value=value, arrays=arrays).write(self.folder, key)
        if not self.keeps_journals:
            journal_path(self.folder, key).unlink(missing_ok=True)

    def fingerprint(self, key: str) -> str | None:
        """Return a finished step's fingerprint, or None."""
        stored = stored_step(self.folder, key)
        return None if stored is None else stored.fingerprint

    def finished(self, prefix: str = "") -> list[str]:
        """List the keys of finished steps that start with `prefix`, sorted."""
        return list(step_paths(self.folder, prefix))

    def values(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield keys and values of finished steps that start with `prefix`, sorted by key."""
        return read_steps(self.folder, prefix)

    def part(self, key: str) -> Path:
        return part_path(self.folder, key)

    def create(self) -> None:
        """Create the folder and `run.json` unless they exist."""
        if self.run is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(RunFile(configuration=self.asked.values, versions=current_versions()))

    def begin(self) -> None:
        """Create the folder before a step runs, and say once if other versions or another device go on with the run."""
        self.used = True
        self.create()
        compared, self.compared = self.compared, True
        if compared or not self.begun:
            return
        now, before = current_versions(), self.begun
        if differ := [name for name in now if name != "rlab" and before.get(name, now[name]) != now[name]]:
            begun, here = (", ".join(f"{name} {versions[name]}" for name in differ) for versions in (before, now))
            other = f"was begun with {begun} and goes on with {here}"
            give_notice(f"{self.folder} {other}: results may differ in their last bits")

    def close(self) -> None:
        """Leave out of `run.json` what changed because it was used."""
        if self.run is not None and self.used and self.asked.contents:
            self.asked.settle()
            self._write(self.run.model_copy(update={"configuration": self.asked.values}))

    def forget(self) -> None:
        """Remove what the run has written if it has no result yet, so that the folder is free for any configuration."""
        with suppress(OSError, FolderError):  # the error that ended the run says more
            if self.run is not None and self._is_bare():
                shutil.rmtree(self.folder / PARTS, ignore_errors=True)
                for name in (CONFIG, RUN):
                    (self.folder / name).unlink(missing_ok=True)
                self.run = None

    def _is_bare(self) -> bool:
        """Whether nothing is finished and the folder holds only what a run writes before its first result."""
        return not self.finished() and not self.is_finished and self._names() <= {CONFIG, PARTS, RUN}

    def clean(self) -> None:
        """Remove half-written files, and arrays and journals of no use."""
        if self.run is None:
            for path in self.folder.glob(f"{RUN}.*{LEFTOVER}"):
                path.unlink(missing_ok=True)
            return
        remove_leftovers(self.folder)
        if not self.is_finished:
            self.unfinish()
            self._remove_arrays({self.part(key) for key in self.finished()})
        for key in () if self.keeps_journals else self.finished():
            if (
                journal := journal_path(self.folder, key)
            ).exists():  # a read-only medium refuses even to remove nothing
                journal.unlink()

    def _remove_arrays(self, but: set[Path]) -> None:
        for path in {*(self.folder / PARTS).glob(f"*{ARRAYS}")} - but:
            path.unlink(missing_ok=True)

    @property
    def is_finished(self) -> bool:
        """Whether the run's files are complete and none of them was deleted."""
        files = {} if self.run is None else self.run.files
        return bool(files) and all((self.folder / name).exists() for name in files)

    def finish(self, *names: str) -> None:
        """Record the run's files as complete and remove the arrays, which they include, unless the run keeps them."""
        assert self.run is not None
        if not self.run.files:
            files = {name: file_digest(self.folder / name) for name in names}
            for key, path in step_paths(self.folder).items() if self.keeps_parts else ():
                digest = read_step(path).arrays if self.part(key).exists() else None
                files |= {f"{PARTS}/{self.part(key).name}": digest} if digest else {}
            self._write(self.run.model_copy(update={"files": files}))
        if not self.keeps_parts:
            self._remove_arrays(set())

    def drop(self, key: str) -> None:
        """Forget a step, so that it runs again."""
        step_path(self.folder, key).unlink(missing_ok=True)

    def unfinish(self) -> None:
        """Forget the run's files, so that they are made again."""
        if self.run is not None and self.run.files:
            self._write(self.run.model_copy(update={"files": {}}))

    def _write(self, run: RunFile) -> None:
        if run != self.run:
            run.write(self.folder)
            self.run = run


def _fits(fingerprint: Mark, stored: Step) -> bool:
    same = fingerprint == stored.fingerprint
    return fingerprint.fits(stored.fingerprint) if isinstance(fingerprint, Contents) else same
