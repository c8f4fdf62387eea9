"""Going on after a stop: a step is made once, and read back when the same command is given again.

    value = resume.step("chunk-00000064", fingerprint, make)

A folder belongs to what was asked of it first; another question is refused. Its ledger (SQLite) says which steps are
finished and under which fingerprint. What a step made is plain values, kept in the ledger, or holds tensors and is kept in a
file beside it that is whole before the ledger says so: the process may be killed at any moment. Nothing is written before the
first step is made, so that a run that fails at its start leaves no folder behind.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from torch import Tensor

from rlab.errors import InputError
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.names import refuse_links

LEDGER, PARTS = "ledger.sqlite", "parts"
Value = TypeVar("Value")
_TABLES = """
create table if not exists asked (value text not null);
create table if not exists steps (
    key text primary key, fingerprint text not null, begun integer not null, finished integer not null, value text
);
"""


class Resume:
    """The finished steps of one folder; `asked` is the whole question as plain values, `hint` says how to name another folder."""

    def __init__(self, folder: Path, asked: Mapping[str, Any], hint: str = "name another folder with --out") -> None:
        self.folder, self.asked, self.hint = folder, json.loads(json.dumps(redact(dict(asked)), default=str)), hint
        self.db: sqlite3.Connection | None = None
        refuse_links(folder)
        if (folder / LEDGER).exists():
            self._open()
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder} exists and holds something else: {hint}")

    def step(
        self, key: str, fingerprint: str, make: Callable[[], Value], stale: Literal["refuse", "remake"] = "refuse"
    ) -> Value:
        """What was made under this key and fingerprint, or made now; `stale`: what to do where the fingerprint differs."""
        before = self.fingerprint(key)
        if before == fingerprint:
            return self._read(key)
        if before is not None and stale == "refuse":
            raise InputError(f"{self.folder} holds another {key}: {self.hint}")
        self._begin(key)
        value = make()
        self.record(key, fingerprint, value)
        return value

    def recall(self, key: str, fingerprint: str) -> Any | None:
        """What was recorded under this key and fingerprint; None where nothing was."""
        return self._read(key) if self.fingerprint(key) == fingerprint else None

    def record(self, key: str, fingerprint: str, value: Any) -> None:
        """From here on the step counts as finished; what was recorded under the key before is replaced."""
        db = self.create()
        in_file = _has_tensors(value)
        if in_file:
            if self.fingerprint(key) != fingerprint:  # killed from here on, the file must not count under the old one
                with db:
                    db.execute("update steps set finished = 0 where key = ?", (key,))
            files.write_tree(self.part(key), value)
        with db:
            db.execute(
                "insert into steps values (?, ?, 1, 1, ?) on conflict (key) do update set "
                "fingerprint = excluded.fingerprint, finished = 1, value = excluded.value",
                (key, fingerprint, None if in_file else json.dumps(redact(value))),
            )

    def fingerprint(self, key: str) -> str | None:
        """Of a finished step; None where it is not finished."""
        if self.db is None:
            return None
        row = self.db.execute("select fingerprint from steps where key = ? and finished = 1", (key,)).fetchone()
        return None if row is None else str(row[0])

    def values(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Finished steps whose key begins so, in the order of their keys, with what they made."""
        keys = [] if self.db is None else self.db.execute("select key from steps where finished = 1 order by key")
        for (key,) in list(keys):
            if key.startswith(prefix):
                yield key, self._read(key)

    @property
    def interrupted(self) -> int:
        """How often a step was begun and not finished; its rows were asked again."""
        if self.db is None:
            return 0
        return int(self.db.execute("select coalesce(sum(begun - finished), 0) from steps").fetchone()[0])

    def begun(self, key: str) -> int:
        """How often a step has been begun."""
        row = None if self.db is None else self.db.execute("select begun from steps where key = ?", (key,)).fetchone()
        return 0 if row is None else int(row[0])

    def part(self, key: str) -> Path:
        """The file for what a step made, where the ledger does not hold it."""
        return self.folder / PARTS / f"{quote(key, safe='')}.safetensors"

    def create(self) -> sqlite3.Connection:
        """The folder and its ledger, whatever of them is not there yet."""
        if self.db is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open()
        assert self.db is not None
        (self.folder / PARTS).mkdir(exist_ok=True)
        return self.db

    def _begin(self, key: str) -> None:
        if self.db is not None:
            with self.db:
                self.db.execute(
                    "insert into steps values (?, '', 1, 0, null) on conflict (key) do update set "
                    "begun = begun + 1, finished = 0",
                    (key,),
                )

    def _read(self, key: str) -> Any:
        assert self.db is not None
        (value,) = self.db.execute("select value from steps where key = ?", (key,)).fetchone()
        return files.read_tree(self.part(key)) if value is None else json.loads(value)

    def _open(self) -> None:
        db = sqlite3.connect(self.folder / LEDGER)
        try:
            if db.execute("select 1 from sqlite_master where name = 'chunks'").fetchone():
                raise InputError(
                    f"{self.folder} was begun by an older rlab, which alone can go on with it: {self.hint}"
                )
            db.execute("pragma synchronous = full")
            db.executescript(_TABLES)
            asked = db.execute("select value from asked").fetchone()
        except sqlite3.DatabaseError as error:
            raise InputError(f"cannot read {self.folder / LEDGER}: {error}") from error
        if asked is None:
            with db:
                db.execute("insert into asked values (?)", (json.dumps(self.asked, sort_keys=True),))
        else:
            self._check_same(json.loads(asked[0]))
        self.db = db

    def _check_same(self, before: dict[str, Any]) -> None:
        differs = sorted(key for key in before | self.asked if before.get(key) != self.asked.get(key))
        if differs:
            raise InputError(
                f"{self.folder} holds a run of another configuration ({', '.join(differs)} differs): {self.hint}"
            )


def _has_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_tensors(inner) for inner in value.values())
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))
