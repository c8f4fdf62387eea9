"""Continue after a stop: a step runs once, and running the same command again reads its value back.

    with open_run(folder, question) as resume:
        value = resume.step("chunk-00000064", fingerprint, make)

A folder belongs to the first command and configuration (its question); any other is refused. The SQLite ledger lists finished
steps with fingerprints and digests, so that damage is noticed. It holds plain values and tables; a value with tensors is a file
that is complete before the ledger lists it. A run that fails before its first finished step leaves only paid answers.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import pyarrow as pa

from rlab.errors import FolderError, give_notice
from rlab.redact import redact
from rlab.storage import files, ledger
from rlab.storage.contents import Contents
from rlab.storage.deleted import forget_deleted
from rlab.storage.journal import count_answers, journal_path
from rlab.storage.lock import LOCK, hold
from rlab.storage.names import CONFIG, refuse_strange
from rlab.storage.question import HINT, Question, has_tensors
from rlab.storage.tables import redact_table

Value = TypeVar("Value")
Mark = str | Contents  # what a step depends on


@contextmanager
def open_run(folder: Path, question: Mapping[str, Any], paid: bool = False, **keeps: bool) -> Iterator[Resume]:
    """Open the finished steps of a folder that belongs to this question, and lock it; answers that are `paid` outlast an error."""
    plain = {key: value for key, value in question.items() if not isinstance(value, Contents)}
    fingerprint = ledger.sha256(json.dumps(plain, sort_keys=True, default=str))[:24]
    with hold(folder, str(question.get("command", "")), fingerprint):
        resume = Resume(folder, question, **keeps)
        new = resume.db is None
        try:
            resume.clean()
            if resume.db is None and (lost := resume.asked.lost()):
                give_notice(f"this run cannot be resumed, because a later run cannot recognise {lost}")
            yield resume
        except Exception:
            if new and not (paid and count_answers(folder)):
                resume.forget()
            raise
        finally:
            resume.close()


class Resume:
    """The finished steps of one folder; `question` is the whole configuration, and a finished run keeps `parts` and `journals`."""

    def __init__(self, folder: Path, question: Mapping[str, Any], parts: bool = True, journals: bool = False) -> None:
        self.folder, self.keeps_parts, self.keeps_journals = folder, parts, journals
        self.asked = Question(question)
        self.question = self.asked.values
        self.used = False  # whether steps ran
        self.db: sqlite3.Connection | None = None
        self.before = dict[str, str]()  # versions and device of the process that began the run, until they are compared
        refuse_strange(folder)
        if (folder / ledger.LEDGER).exists():
            self._open()
        elif folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
            raise FolderError(f"{folder} exists and holds something else: {HINT}")

    def step(
        self, key: str, fingerprint: Mark, make: Callable[[], Value], stale: Literal["refuse", "remake"] = "refuse"
    ) -> Value:
        """Return the value stored under this key and fingerprint, or make it; `stale` is for another fingerprint."""
        if self.holds(key, fingerprint):
            return self._read(key)
        if stale == "refuse":
            self.refuse_other(key, fingerprint)
        self.begin(key)
        value = make()
        self.record(key, fingerprint, value)
        return value

    def recall(self, key: str, fingerprint: Mark) -> Any | None:
        """Return the value recorded under this key and fingerprint, or None."""
        return self._read(key) if self.holds(key, fingerprint) else None

    def holds(self, key: str, fingerprint: Mark) -> bool:
        """Whether a value is recorded under this key and fingerprint."""
        before = self.fingerprint(key)
        return fingerprint.fits(before) if isinstance(fingerprint, Contents) else fingerprint == before

    def refuse_other(self, key: str, fingerprint: Mark) -> None:
        if self.fingerprint(key) is not None and not self.holds(key, fingerprint):
            raise FolderError(f"{self.folder} holds results of another configuration ({key} differs): {HINT}")

    def record(self, key: str, fingerprint: Mark, value: Any, part: bool = False) -> None:
        """Record a finished step, which replaces an earlier value; with `part`, the file `self.part(key)` belongs to it."""
        self.used = True
        self.create()
        if isinstance(fingerprint, Contents):
            fingerprint = fingerprint.settled()
        stored, digest, before = None, None, self._tree(key)
        if has_tensors(value):
            files.write_tree(self.part(key), value)
            digest = ledger.file_digest(self.part(key))
            self.part(key).replace(self._named(key, digest))  # the ledger still points to the old file
        else:
            plain = redact_table(value) if isinstance(value, pa.Table) else redact(value)
            stored, digest = ledger.to_stored(plain), ledger.file_digest(self.part(key)) if part else None
        self.write_ledger(
            "insert into steps (key, fingerprint, begun, finished, value, digest, part) values (?, ?, 1, 1, ?, ?, ?) "
            "on conflict (key) do update set fingerprint = excluded.fingerprint, finished = 1, value = excluded.value, "
            "digest = excluded.digest, part = excluded.part",
            key, fingerprint, stored, stored and ledger.sha256(stored), digest,
        )  # fmt: skip
        if before is not None and before != self._tree(key):
            before.unlink(missing_ok=True)
        if not self.keeps_journals:
            journal_path(self.folder, key).unlink(missing_ok=True)

    def fingerprint(self, key: str) -> str | None:
        """Return a finished step's fingerprint, or None."""
        rows = self.query_ledger("select fingerprint from steps where key = ? and finished = 1", key)
        return str(rows[0][0]) if rows else None

    def finished(self, prefix: str = "") -> list[str]:
        """List the keys of finished steps that start with `prefix`, sorted."""
        keys = self.query_ledger("select key from steps where finished = 1 order by key")
        return [key for (key,) in keys if str(key).startswith(prefix)]

    def values(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Yield keys and values of finished steps that start with `prefix`, sorted by key."""
        for key in self.finished(prefix):
            yield key, self._read(key)

    @property
    def interrupted(self) -> int:
        """The number of times a step was begun and not finished; its rows were queried again."""
        rows = self.query_ledger("select coalesce(sum(begun - finished), 0) from steps")
        return int(rows[0][0]) if rows else 0

    def part(self, key: str) -> Path:
        return part_path(self.folder, key)

    def create(self) -> None:
        """Create the folder and its ledger unless they exist."""
        if self.db is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()

    def close(self) -> None:
        if self.db is not None:
            if self.used and self.asked.contents:
                self.asked.settle()
                self.write_ledger("update asked set value = ?", json.dumps(self.question, sort_keys=True))
            self.db.close()
            self.db = None

    def forget(self) -> None:
        """Remove what the run has written if it has no result yet, so that the folder is free for any configuration."""
        with suppress(OSError, FolderError):  # the error that ended the run says more
            if self.db is not None and self._is_bare():
                self.close()
                shutil.rmtree(self.folder / ledger.PARTS, ignore_errors=True)
                for name in (CONFIG, ledger.LEDGER):
                    (self.folder / name).unlink(missing_ok=True)

    def _is_bare(self) -> bool:
        """Whether nothing is finished and the folder holds only what a run writes before its first result."""
        own = {LOCK, CONFIG, ledger.PARTS, ledger.LEDGER, f"{ledger.LEDGER}-journal"}
        done = f"select 1 from steps where finished = 1 and key <> '{ledger.THREADS}' union select 1 from files"
        return not self.query_ledger(done) and {path.name for path in self.folder.iterdir()} <= own

    def clean(self) -> None:
        """Remove half-written files, and parts and journals of no use, and forget steps whose file was deleted."""
        if self.db is None:
            return
        ledger.remove_leftovers(self.folder)
        forget_deleted(self)
        finished = self.query_ledger("select key, value is null, part from steps where finished = 1")
        if not finished:  # the ledger may have been lost, so keep all parts
            return
        kept = {self.file(key, in_file, digest) for key, in_file, digest in finished}
        journals = set() if self.keeps_journals else {journal_path(self.folder, key) for key, *_ in finished}
        for path in {*(self.folder / ledger.PARTS).glob("*.safetensors"), *journals} - kept:
            path.unlink(missing_ok=True)

    @property
    def is_finished(self) -> bool:
        """Whether the run's files are complete."""
        return bool(self.query_ledger("select 1 from files"))

    def finish(self, *names: str) -> None:
        """Record the run's files as complete and remove the parts, which they include, unless the run keeps them."""
        for name in names:
            if not self.query_ledger("select 1 from files where name = ?", name):
                self.write_ledger("insert into files values (?, ?)", name, ledger.file_digest(self.folder / name))
        if not self.keeps_parts:
            shutil.rmtree(self.folder / ledger.PARTS, ignore_errors=True)

    def check_part(self, key: str) -> None:
        """Refuse a part that differs from what the step wrote."""
        ((digest, in_file),) = self.query_ledger("select part, value is null from steps where key = ?", key)
        if digest is not None:
            ledger.check_digest(self.file(key, in_file, digest), digest)

    def drop(self, key: str) -> None:
        """Forget a step, so that it runs again."""
        self.write_ledger("update steps set begun = 0, finished = 0 where key = ?", key)

    def unfinish(self) -> None:
        """Forget the run's files, so that they are made again."""
        if self.is_finished:
            self.write_ledger("delete from files")

    def begin(self, key: str) -> None:
        """Note that the step has begun, so that an interruption shows."""
        self.used = True
        self.create()
        self._compare_versions()
        insert = "insert into steps (key, fingerprint, begun, finished) values (?, '', 1, 0) on conflict (key)"
        self.write_ledger(f"{insert} do update set begun = begun + 1, finished = 0", key)

    def _read(self, key: str) -> Any:
        ((stored, digest, part),) = self.query_ledger("select value, digest, part from steps where key = ?", key)
        if stored is None:
            tree = self._named(key, part)
            ledger.check_digest(tree, part)
            return files.read_tree(tree)
        if digest not in (None, ledger.sha256(stored)):
            damage = f"{self.folder / ledger.LEDGER} is damaged, {key!r} has changed since rlab wrote it"
            remedy = f"delete {self.part(key)} and {ledger.AGAIN}" if self.part(key).exists() else ledger.ELSEWHERE
            raise FolderError(f"{damage}: {remedy}")
        with ledger.one_sentence(self.folder):
            return ledger.from_stored(stored)

    def _tree(self, key: str) -> Path | None:
        """Return the file with a finished step's tensors, or None."""
        rows = self.query_ledger("select part from steps where key = ? and finished = 1 and value is null", key)
        return self._named(key, rows[0][0]) if rows else None

    def file(self, key: str, in_file: bool, digest: str | None) -> Path:
        """The file of a finished step; `in_file` says whether it holds the step's value."""
        return self._named(key, digest) if in_file else self.part(key)

    def _named(self, key: str, digest: str | None) -> Path:
        part = self.part(key)
        return part if digest is None else part.with_name(f"{part.stem}-{digest[:16]}{part.suffix}")

    def _open(self) -> None:
        self.db = ledger.connect(self.folder, write=True)
        before = ledger.read_question(self.db, self.folder)
        if before is not None and self._is_bare() and self.asked.differ(before.values):  # killed at the first step
            if lost := count_answers(self.folder):
                give_notice(
                    f"{lost:,} answers of a stopped run of another configuration in {self.folder} are discarded"
                )
            self.forget()
            self.db, before = ledger.connect(self.folder, write=True), None
        if before is not None:
            self.asked.refuse_other(self.folder, before)
            self.before = before.versions
        with ledger.one_sentence(self.folder):
            self.db.execute("pragma synchronous = full")
            self.db.executescript(ledger.TABLES)
        if before is None:
            versions = json.dumps(ledger.current_versions(), sort_keys=True)
            self.write_ledger("insert into asked values (?, ?)", json.dumps(self.question, sort_keys=True), versions)

    def _compare_versions(self) -> None:
        """Say once if other versions or another device go on with the run."""
        now, before, self.before = ledger.current_versions(), self.before, {}
        if differ := [name for name in ("torch", "Python", "device") if before.get(name, now[name]) != now[name]]:
            begun, here = (", ".join(f"{name} {versions[name]}" for name in differ) for versions in (before, now))
            other = f"was begun with {begun} and goes on with {here}"
            give_notice(f"{self.folder} {other}: results may differ in their last bits")

    def query_ledger(self, query: str, *values: Any) -> list[Any]:
        """Return rows of the ledger; none if there is no ledger yet."""
        if self.db is None:
            return []
        with ledger.one_sentence(self.folder):
            return self.db.execute(query, values).fetchall()

    def write_ledger(self, query: str, *values: Any) -> None:
        assert self.db is not None
        with ledger.one_sentence(self.folder), self.db:
            self.db.execute(query, values)


def part_path(folder: Path, key: str) -> Path:
    return folder / ledger.PARTS / f"{quote(key, safe='')}.safetensors"
