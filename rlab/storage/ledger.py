"""The ledger of a run folder (SQLite): its tables, the digests that tell damage, and what a kill may leave beside it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlab import __version__
from rlab.errors import FolderError, InputError

LEDGER, PARTS, LEFTOVER = "ledger.sqlite", "parts", ".part"
TABLES = """
create table if not exists asked (value text not null, versions text not null);
create table if not exists steps (
    key text primary key, fingerprint text not null, begun integer not null, finished integer not null,
    value text, digest text, part text
);
create table if not exists files (name text primary key, digest text not null);
"""


@dataclass(frozen=True)
class Asked:
    """The question that a run folder answers, and the versions and the device it was begun with."""

    question: dict[str, Any]
    versions: dict[str, str]


def read_asked(db: sqlite3.Connection, folder: Path) -> Asked | None:
    """What the folder of this ledger was asked first; None if a kill came before it was written."""
    with one_sentence(folder):
        if not db.execute("select 1 from sqlite_master").fetchone():
            return None
        if not any(row[1] == "versions" for row in db.execute("pragma table_info(asked)")):
            raise FolderError(f"{folder} was made by rlab 0.2.0 or earlier: run the command again with this version")
        row = db.execute("select value, versions from asked").fetchone()
        return None if row is None else parse_asked(*row)


def parse_asked(question: str, versions: str) -> Asked:
    """Both as JSON; TypeError or ValueError if they are damaged."""
    asked = Asked(json.loads(question), json.loads(versions))
    if not isinstance(asked.question, dict) or not isinstance(asked.versions, dict) or "rlab" not in asked.versions:
        raise ValueError("expected a question and versions")
    return asked


def current_versions() -> dict[str, str]:
    """The versions and the device that decide the last bits of a result."""
    import torch  # here, as `rlab serve` starts without it

    cpu = f"{platform.machine()} CPU ({torch.backends.cpu.get_cpu_capability()})"
    device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else cpu
    return {"rlab": __version__, "Python": platform.python_version(), "torch": torch.__version__, "device": device}


def read_versions(folder: Path) -> dict[str, str]:
    """The versions and the device a run was begun with; empty if the folder has no ledger."""
    if not (folder / LEDGER).is_file():
        return {}
    with _opened(folder) as db:
        asked = read_asked(db, folder)
        return {} if asked is None else asked.versions


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
    """Refuses files that are not what the finished run wrote; a folder without a ledger has no digests to check."""
    if not (folder / LEDGER).is_file():
        return
    with _opened(folder) as db:
        asked = read_asked(db, folder)
        digests = {} if asked is None else dict(db.execute("select name, digest from files").fetchall())
        for name in names:
            check_digest(folder / name, digests.get(name))


def check_shard(folder: Path, path: Path) -> None:
    """Refuses a file in PARTS that is not what its step wrote; a file the ledger does not list is not checked."""
    if path.parent.name != PARTS or not (folder / LEDGER).is_file():
        return
    with _opened(folder) as db:
        if read_asked(db, folder) is None:
            return
        row = db.execute("select part from steps where key = ?", (path.stem,)).fetchone()
    check_digest(path, row and row[0])


@contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    with one_sentence(folder), closing(sqlite3.connect(folder / LEDGER)) as db:
        yield db


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
        raise FolderError(f"cannot read {path}: {error.strerror}. {advice(path.parent)}") from error
    raise FolderError(f"{path} is damaged: it is not what was written. {advice(path.parent)}")


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
        raise FolderError(f"{folder} is damaged, or was edited: {why}. {advice(folder)}") from error


@contextmanager
def one_sentence(folder: Path) -> Iterator[None]:
    """Whatever is wrong with the ledger, or with the disk it is on."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FolderError(
            f"cannot use {folder / LEDGER}: {error}; the same command goes on once that is mended"
        ) from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise FolderError(f"cannot read {folder / LEDGER}, it is damaged: {error}. {advice(folder)}") from error
