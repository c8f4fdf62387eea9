"""The ledger of a run folder (SQLite): its tables, the digests that tell damage, and what a kill may leave beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rlab.errors import InputError

LEDGER, PARTS, LEFTOVER = "ledger.sqlite", "parts", ".part"
TABLES = """
create table if not exists asked (value text not null);
create table if not exists steps (
    key text primary key, fingerprint text not null, begun integer not null, finished integer not null, value text
);
create table if not exists files (name text primary key, digest text not null);
"""
COLUMNS = ("digest", "part")  # of steps, since 0.3: of the value, and of the file in PARTS


def read_asked(db: sqlite3.Connection, folder: Path) -> dict[str, Any] | None:
    """What the folder of this ledger was asked first; None where it was killed before it was told."""
    with one_sentence(folder):
        if not db.execute("select 1 from sqlite_master where name = 'asked'").fetchone():
            return None
        row = db.execute("select value from asked").fetchone()
        asked = None if row is None else json.loads(row[0])
        if not isinstance(asked, dict | None):
            raise ValueError(f"expected fields, got {type(asked).__name__}")
        return asked


def to_stored(value: Any) -> str | bytes:
    """What a step made, without secrets already: a table as an Arrow stream, anything else as JSON."""
    import pyarrow as pa  # here, as `rlab serve` starts without it

    if not isinstance(value, pa.Table):
        return json.dumps(value)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write_table(value)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def from_stored(stored: str | bytes) -> Any:
    """The inverse; ValueError where it is damaged."""
    if isinstance(stored, str):
        return json.loads(stored)
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(stored) as stream:
            table = stream.read_all()
        table.validate(full=True)  # else a wrong length within it would be followed
        return table
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error


def check_files(folder: Path, *names: str) -> None:
    """Refuses a finished run's files that are not what it wrote; folders of before digests were kept are taken as they are."""
    if not (folder / LEDGER).is_file():
        return
    with one_sentence(folder), closing(sqlite3.connect(folder / LEDGER)) as db:
        if db.execute("select 1 from sqlite_master where name = 'files'").fetchone():
            digests = dict(db.execute("select name, digest from files").fetchall())
            for name in names:
                check_digest(folder / name, digests.get(name))


def check_shard(folder: Path, path: Path) -> None:
    """Refuses a file in PARTS that is not what its step wrote; what the ledger does not know is taken as it is."""
    if path.parent.name != PARTS or not (folder / LEDGER).is_file():
        return
    with one_sentence(folder), closing(sqlite3.connect(folder / LEDGER)) as db:
        if not any(row[1] == "part" for row in db.execute("pragma table_info(steps)")):
            return
        found = db.execute("select part from steps where key = ?", (path.stem,)).fetchone()
    check_digest(path, found and found[0])


def remove_leftovers(folder: Path) -> list[str]:
    """Names of files and folders that a kill left half-written, now gone; runs within the folder look after their own."""
    names = []
    for parent, folders, found in os.walk(folder):
        for name in [name for name in (*folders, *found) if name.endswith(LEFTOVER)]:
            path = Path(parent, name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            names.append(name)
        folders[:] = [name for name in folders if not Path(parent, name, LEDGER).exists()]
    return names


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def check_digest(path: Path, digest: str | None) -> None:
    try:
        if digest in (None, file_digest(path)):
            return
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. {advice(path.parent)}") from error
    raise InputError(f"{path} is damaged: it is not what was written. {advice(path.parent)}")


def advice(folder: Path) -> str:
    run = folder.parent if folder.name == PARTS else folder
    return f"`rlab repair {run}` keeps what is whole, and the run's command makes the rest again"


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """What cannot be understood of a run folder's files is one sentence: they are no longer what rlab wrote."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        why = f"{type(error).__name__} {' '.join(str(error).split())}"
        raise InputError(f"{folder} is damaged, or was edited: {why}. {advice(folder)}") from error


@contextmanager
def one_sentence(folder: Path) -> Iterator[None]:
    """Whatever is wrong with the ledger, or with the disk it is on."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise InputError(
            f"cannot use {folder / LEDGER}: {error}; the same command goes on once that is mended"
        ) from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {folder / LEDGER}, it is damaged: {error}. {advice(folder)}") from error
