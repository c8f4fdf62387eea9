"""Going on after a stop: a step is made once, and read back when the same command is given again.

    with open_run(folder, asked) as resume:
        value = resume.step("chunk-00000064", fingerprint, make)

A folder belongs to what was asked of it first; another command or another question is refused. Its ledger (SQLite) says which
steps are finished, under which fingerprint, and what their bytes digest to, so that damage is noticed when they are read.
What a step made is plain values or a table, kept in the ledger, or holds tensors and is kept in a file beside it that is whole
before the ledger says so: the process may be killed at any moment. Of a run that fails before its first step nothing stays behind.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import pyarrow as pa
from torch import Tensor

from rlab import __version__
from rlab.errors import FolderError
from rlab.redact import redact
from rlab.storage import files
from rlab.storage.ledger import (
    LEDGER,
    PARTS,
    TABLES,
    Asked,
    advice,
    check_digest,
    current_versions,
    file_digest,
    from_stored,
    one_sentence,
    read_asked,
    remove_leftovers,
    sha256,
    to_stored,
)  # fmt: skip
from rlab.storage.lock import LOCK, Waiting, hold
from rlab.storage.names import refuse_links
from rlab.storage.tables import redact_table

Value = TypeVar("Value")
_PLAIN = {str, int, float, bool, type(None)}


@contextmanager
def open_run(folder: Path, asked: Mapping[str, Any], wait: Waiting | None = None) -> Iterator[Resume]:
    """The finished steps of a folder that `asked["command"]` owns; keeps other processes out and removes half-written files."""
    question = sha256(json.dumps(dict(asked), sort_keys=True, default=str))[:24]
    with hold(folder, str(asked.get("command", "")), question, wait=wait):
        resume = Resume(folder, asked)
        try:
            resume.clean()
            yield resume
        finally:
            resume.close()


class Resume:
    """The finished steps of one folder; `asked` is the whole question as plain values, `hint` says how to name another folder."""

    def __init__(
        self,
        folder: Path,
        asked: Mapping[str, Any],
        hint: str = "name another folder with --out",
    ) -> None:
        self.folder, self.asked, self.hint = folder, json.loads(json.dumps(redact(dict(asked)), default=str)), hint
        self.db: sqlite3.Connection | None = None
        refuse_links(folder)
        if (folder / LEDGER).exists():
            self._open()
        elif _is_foreign(folder):
            raise FolderError(f"{folder} exists and holds something else: {hint}")

    def step(
        self,
        key: str,
        fingerprint: str,
        make: Callable[[], Value],
        stale: Literal["refuse", "remake"] = "refuse",
        part: bool = False,
    ) -> Value:
        """What was made under this key and fingerprint, or made now; `stale`: what to do where the fingerprint differs;
        `part`: `make` writes the file `self.part(key)` itself, beside the values it returns."""
        before = self.fingerprint(key)
        if before == fingerprint:
            return self._read(key)
        if before is not None and stale == "refuse":
            raise FolderError(f"{self.folder} holds another {key}: {self.hint}")
        self.begin(key)
        value = make()
        self.record(key, fingerprint, value, part)
        return value

    def recall(self, key: str, fingerprint: str) -> Any | None:
        """What was recorded under this key and fingerprint; None where nothing was."""
        return self._read(key) if self.fingerprint(key) == fingerprint else None

    def record(self, key: str, fingerprint: str, value: Any, part: bool = False) -> None:
        """From here on the step counts as finished; what was recorded under the key before is replaced."""
        self.create()
        stored, digest, before = None, None, self._tree(key)
        if _has_tensors(value):
            files.write_tree(self.part(key), value)
            digest = file_digest(self.part(key))
            self.part(key).replace(self._named(key, digest))  # beside the one that the ledger still points to
        else:
            plain = redact_table(value) if isinstance(value, pa.Table) else redact(value)
            stored, digest = to_stored(plain), file_digest(self.part(key)) if part else None
        self._write(
            "insert into steps (key, fingerprint, begun, finished, value, digest, part) values (?, ?, 1, 1, ?, ?, ?) "
            "on conflict (key) do update set fingerprint = excluded.fingerprint, finished = 1, value = excluded.value, "
            "digest = excluded.digest, part = excluded.part",
            key, fingerprint, stored, stored and sha256(stored), digest,
        )  # fmt: skip
        if before is not None and before != self._tree(key):
            before.unlink(missing_ok=True)

    def fingerprint(self, key: str) -> str | None:
        """Of a finished step; None where it is not finished."""
        rows = self.ask("select fingerprint from steps where key = ? and finished = 1", key)
        return str(rows[0][0]) if rows else None

    def finished(self, prefix: str = "") -> list[str]:
        """Keys of the finished steps that begin so, in order."""
        keys = self.ask("select key from steps where finished = 1 order by key")
        return [key for (key,) in keys if str(key).startswith(prefix)]

    def values(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Finished steps whose key begins so, in the order of their keys, with what they made."""
        for key in self.finished(prefix):
            yield key, self._read(key)

    @property
    def interrupted(self) -> int:
        """How often a step was begun and not finished; its rows were asked again."""
        rows = self.ask("select coalesce(sum(begun - finished), 0) from steps")
        return int(rows[0][0]) if rows else 0

    def begun(self, key: str) -> int:
        """How often a step has been begun."""
        rows = self.ask("select begun from steps where key = ?", key)
        return int(rows[0][0]) if rows else 0

    def part(self, key: str) -> Path:
        """The file for what a step made, where the ledger does not hold it."""
        return part_path(self.folder, key)

    def create(self) -> None:
        """The folder and its ledger, whatever of them is not there yet."""
        if self.db is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()

    def close(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None

    def clean(self) -> None:
        """Removes what a kill left: files half-written, and parts that no finished step has; all stay where the ledger is empty,
        as it may have been lost."""
        if self.db is None:
            return
        remove_leftovers(self.folder)
        finished = self.ask("select key, value is null, part from steps where finished = 1")
        if not finished:
            return
        kept = {self._named(key, digest) if in_file else self.part(key) for key, in_file, digest in finished}
        for path in (self.folder / PARTS).glob("*.safetensors"):
            if path not in kept:
                path.unlink()

    def finish(self, *names: str, parts: bool = False) -> None:
        """The run's files that are whole from now on; what was kept in parts is in them, unless `parts` are to stay."""
        for name in names:
            if not self.ask("select 1 from files where name = ?", name):
                self._write("insert into files values (?, ?)", name, file_digest(self.folder / name))
        if not parts:
            shutil.rmtree(self.folder / PARTS, ignore_errors=True)

    def check_part(self, key: str) -> None:
        """Refuses a part that is not what the step wrote."""
        ((digest, in_file),) = self.ask("select part, value is null from steps where key = ?", key)
        if digest is not None:
            check_digest(self._named(key, digest) if in_file else self.part(key), digest)

    def drop(self, key: str) -> None:
        """The step is to be made again."""
        self._write("update steps set finished = 0 where key = ?", key)

    def unfinish(self) -> None:
        """The run's files are not whole after all."""
        self._write("delete from files")

    def begin(self, key: str) -> None:
        """The step is being made; where it is not recorded in the end, that shows."""
        if self.db is not None:
            self._write(
                "insert into steps (key, fingerprint, begun, finished) values (?, '', 1, 0) "
                "on conflict (key) do update set begun = begun + 1, finished = 0",
                key,
            )

    def _read(self, key: str) -> Any:
        ((stored, digest),) = self.ask("select value, digest from steps where key = ?", key)
        if stored is None:
            tree = self._tree(key)
            assert tree is not None
            ((part,),) = self.ask("select part from steps where key = ?", key)
            check_digest(tree, part)
            return files.read_tree(tree)
        if digest not in (None, sha256(stored)):
            raise FolderError(
                f"{self.folder / LEDGER} is damaged: {key!r} is not what was written. {advice(self.folder)}"
            )
        with one_sentence(self.folder):
            return from_stored(stored)

    def _tree(self, key: str) -> Path | None:
        """The file that holds a finished step's tensors; None where there is none."""
        rows = self.ask("select part from steps where key = ? and finished = 1 and value is null", key)
        return self._named(key, rows[0][0]) if rows else None

    def _named(self, key: str, digest: str | None) -> Path:
        part = self.part(key)
        return part if digest is None else part.with_name(f"{part.stem}-{digest[:16]}{part.suffix}")

    def _open(self) -> None:
        self.db = sqlite3.connect(self.folder / LEDGER)
        before = read_asked(self.db, self.folder)
        if before is not None:
            self._check_same(before)
        with one_sentence(self.folder):
            self.db.execute("pragma synchronous = full")
            self.db.executescript(TABLES)
        if before is None:
            versions = json.dumps(current_versions(), sort_keys=True)
            self._write("insert into asked values (?, ?)", json.dumps(self.asked, sort_keys=True), versions)

    def _check_same(self, begun: Asked) -> None:
        before, version = begun.question, begun.versions["rlab"]
        if _minor(version) != _minor(__version__):
            raise FolderError(
                f"{self.folder} was begun by rlab {version}, and this is {__version__}: continue it with that version, or "
                f"{self.hint}"
            )
        mine, theirs = self.asked.get("command"), before.get("command")
        if mine != theirs:
            raise FolderError(f"{self.folder} belongs to `rlab {theirs}`, not to `rlab {mine}`: {self.hint}")
        differs = sorted(key for key in before | self.asked if before.get(key) != self.asked.get(key))
        if differs:
            raise FolderError(
                f"{self.folder} holds a run of another configuration ({', '.join(differs)} differs): {self.hint}"
            )

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Rows of the ledger; none where there is no ledger yet."""
        if self.db is None:
            return []
        with one_sentence(self.folder):
            return self.db.execute(query, values).fetchall()

    def _write(self, query: str, *values: Any) -> None:
        assert self.db is not None
        with one_sentence(self.folder), self.db:
            self.db.execute(query, values)


def part_path(folder: Path, key: str) -> Path:
    """The file of a step that the ledger does not hold."""
    return folder / PARTS / f"{quote(key, safe='')}.safetensors"


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _is_foreign(folder: Path) -> bool:
    """Whether it holds anything but the lock of a command that was killed at its start."""
    if not folder.exists():
        return False
    return not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())


def _has_tensors(value: Any) -> bool:
    if type(value) in _PLAIN or (type(value) is list and set(map(type, value)) <= _PLAIN):
        return False  # which most of what is recorded is
    if isinstance(value, Mapping):
        return any(_has_tensors(inner) for inner in value.values() if type(inner) not in _PLAIN)
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))
