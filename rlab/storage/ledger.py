"""A run folder's SQLite ledger: its tables, the digests that reveal damage, and what a killed process leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlab import __version__
from rlab.errors import FolderError, InputError
from rlab.storage.stored import open_stored, strange

LEDGER, PARTS, LEFTOVER = "ledger.sqlite", "parts", ".part"
AGAIN = "run the same command again, which makes only what is missing"  # after a deleted file of a run
ELSEWHERE = "restore it from a copy, or run the same command with another folder"
THREADS = "threads"  # the step that holds the number of threads: a fact, no result
TABLES = """
create table if not exists asked (value text not null, versions text not null);
create table if not exists steps (
    key text primary key, fingerprint text not null, begun integer not null, finished integer not null,
    value text, digest text, part text
);
create table if not exists files (name text primary key, digest text not null);
"""
_SCHEMA = "select type, name, sql from sqlite_master"
PATIENCE = 60.0  # seconds for one query of a ledger, which may be a stranger's
MOST_VALUE = 2**29  # bytes of one value
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # ends a journal that names other files, which SQLite would delete


class BoundedConnection(sqlite3.Connection):
    """A connection whose queries end with an error after PATIENCE."""

    def execute(self, query: str, values: Any = (), /) -> sqlite3.Cursor:
        end = time.monotonic() + PATIENCE
        self.set_progress_handler(lambda: time.monotonic() > end, 10**5)
        return super().execute(query, values)


def connect(folder: Path, write: bool = False) -> BoundedConnection:
    """Open a folder's ledger, for reading only unless `write` is set or a killed process left a journal to undo.

    A stranger's ledger runs no code of its own: it holds the expected tables or is refused.
    """
    path = folder / LEDGER
    _check_files(path)
    mode = "rwc" if write else "rw" if path.with_name(f"{LEDGER}-journal").exists() else "ro"
    with one_sentence(folder):
        address, patience = f"{path.resolve().as_uri()}?mode={mode}", 5 if write else 1
        db = sqlite3.connect(address, timeout=patience, uri=True, factory=BoundedConnection)
        try:
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE)
            db.execute("pragma trusted_schema = off")
            _check_schema(db, folder)
        except BaseException:
            db.close()
            raise
        return db


def _check_files(path: Path) -> None:
    """Refuse files that SQLite would open if they could block, and a journal that names other files.

    The ledger itself is not opened: closing it would release the locks of other connections of this process.
    """
    journal = path.with_name(f"{LEDGER}-journal")
    try:
        for each in (path, journal, path.with_name(f"{LEDGER}-wal"), path.with_name(f"{LEDGER}-shm")):
            if os.path.lexists(each) and not stat.S_ISREG(each.lstat().st_mode):
                raise strange(each)
        with open_stored(journal) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
            if file.read() == _SUPER_JOURNAL:
                raise FolderError(f"{journal} names other files, which rlab never writes: remove it")
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from error


def _check_schema(db: sqlite3.Connection, folder: Path) -> None:
    """Refuse views, triggers and tables that rlab does not make; an empty ledger is fine."""
    with closing(sqlite3.connect(":memory:")) as own:
        own.executescript(TABLES)
        expected = set(own.execute(_SCHEMA))
    if set(db.execute(_SCHEMA)) <= expected:
        return
    raise FolderError(f"{folder / LEDGER} is not a ledger of rlab: it holds other tables, so rlab does not read it")


@dataclass(frozen=True)
class Question:
    """The configuration a run folder belongs to, and the versions and device it was begun with."""

    values: dict[str, Any]
    versions: dict[str, str]


def read_question(db: sqlite3.Connection, folder: Path) -> Question | None:
    """Read the question of a folder's ledger; None if a killed process never wrote it."""
    with one_sentence(folder):
        if not db.execute("select 1 from sqlite_master").fetchone():
            return None
        row = db.execute("select value, versions from asked").fetchone()
        return None if row is None else _parse_question(*row)


def _parse_question(values: str, versions: str) -> Question:
    """Parse both from JSON; raise TypeError or ValueError if they are damaged."""
    question = Question(json.loads(values), json.loads(versions))
    if not all(isinstance(part, dict) for part in (question.values, question.versions)):
        raise TypeError("expected two mappings")
    if "rlab" not in question.versions:
        raise ValueError("the version of rlab is missing")
    return question


def stored_command(folder: Path) -> str | None:
    """The command in the folder's ledger, empty if a run was stopped before writing it; None without a readable ledger."""
    if not (folder / LEDGER).is_file():
        return None
    try:
        with closing(connect(folder)) as db:
            question = read_question(db, folder)
    except (InputError, sqlite3.Error):
        return None
    return "" if question is None else str(question.values.get("command", ""))


def why_unreadable(folder: Path, command: str, what: str) -> str:
    """Why the results of a command are not in this folder, after the folder's name; `what` says what the folder should be."""
    other = stored_command(folder)
    if other not in (None, "", command):
        return f"is a folder of `rlab {other}`, not {what}: name one of `rlab {command}`"
    return "is not finished: run its command again to resume it" if (folder / LEDGER).exists() else f"is not {what}"


def current_versions() -> dict[str, str]:
    """Return the versions and the device, which decide the last bits of a result."""
    import torch  # here: `rlab serve` starts without it

    cpu = f"{platform.machine()} CPU ({torch.backends.cpu.get_cpu_capability()})"
    device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else cpu
    return {"rlab": __version__, "Python": platform.python_version(), "torch": torch.__version__, "device": device}


def read_versions(folder: Path) -> dict[str, str]:
    """Read the versions, the device and, if known, the threads a run was begun with; empty if the folder has no ledger."""
    rows = _select(folder, "select value, versions from asked")
    steps = _select(folder, "select value from steps where key = ? and finished = 1", THREADS)
    with reading(folder):
        threads = [(THREADS, str(json.loads(value)["count"])) for (value,) in steps]
    return _parse_question(*rows[0]).versions | dict(threads) if rows else {}


def read_steps(folder: Path, prefix: str) -> list[Any]:
    """Read the values of finished steps whose keys start with `prefix`; empty if the folder has no ledger."""
    rows = _select(folder, "select key, value from steps where finished = 1 and value is not null order by key")
    with one_sentence(folder):
        return [from_stored(value) for key, value in rows if str(key).startswith(prefix)]


def to_stored(value: Any) -> str | bytes:
    """Serialise a step's value, which holds no secrets: a table as an Arrow stream, anything else as JSON."""
    import pyarrow as pa  # here: `rlab serve` starts without it

    if not isinstance(value, pa.Table):
        return json.dumps(value)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write_table(value)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def from_stored(stored: str | bytes) -> Any:
    """Invert `to_stored`; raise ValueError if the content is damaged."""
    if isinstance(stored, str):
        return json.loads(stored)
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(stored) as stream:
            table = stream.read_all()
        table.validate(full=True)  # otherwise Arrow would trust a wrong length inside it
        return table
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error


def check_files(folder: Path, *names: str) -> None:
    """Refuse files that differ from what the finished run wrote; a folder without a ledger has no digests to check."""
    digests = dict(_select(folder, "select name, digest from files"))
    for name in names if digests else ():
        check_digest(folder / name, digests.get(name))


def check_shard(folder: Path, path: Path) -> None:
    """Refuse a file in PARTS that differs from what its step wrote; files the ledger does not list are not checked."""
    if path.parent.name == PARTS:
        for (digest,) in _select(folder, "select part from steps where key = ?", path.stem):
            check_digest(path, digest)


def _select(folder: Path, query: str, *values: str) -> list[Any]:
    """Rows of a folder's ledger; none if it has no ledger, or a killed process never wrote its question."""
    if not os.path.lexists(folder / LEDGER):
        return []
    with one_sentence(folder), closing(connect(folder)) as db:
        return [] if read_question(db, folder) is None else db.execute(query, values).fetchall()


def remove_leftovers(folder: Path) -> None:
    """Remove half-written files and folders; runs inside the folder remove their own."""
    for parent, folders, files in os.walk(folder):
        for name in [name for name in (*folders, *files) if name.endswith(LEFTOVER)]:
            path = Path(parent, name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        folders[:] = [name for name in folders if not Path(parent, name, LEDGER).exists()]


def file_digest(path: Path) -> str:
    with open_stored(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def check_digest(path: Path, digest: str | None) -> None:
    try:
        if digest in (None, file_digest(path)):
            return
    except FileNotFoundError as error:
        raise FolderError(f"{path} is missing: {AGAIN}") from error
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from error
    raise FolderError(f"{path} is damaged, its content has changed since rlab wrote it: delete it and {AGAIN}")


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn any failure to interpret a run folder's files into a FolderError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        why = f"{type(error).__name__} {' '.join(str(error).split())}"
        raise FolderError(f"{folder} is damaged or was edited ({why}): {ELSEWHERE}") from error


@contextmanager
def one_sentence(folder: Path) -> Iterator[None]:
    """Turn any failure of the ledger or its disk into a FolderError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FolderError(f"cannot use {folder / LEDGER}: {error}. Mend this, then repeat the command") from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise FolderError(f"{folder / LEDGER} is damaged ({error}): {ELSEWHERE}") from error
