"""Mending a ledger: what can still be read of it becomes a new one, and steps that are not what was written are taken out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rlab.errors import FolderError, InputError
from rlab.storage.ledger import LEDGER, LEFTOVER, TABLES, parse_asked, read_asked
from rlab.storage.resume import Resume


def reopened(folder: Path) -> Resume | None:
    """The folder's steps under its own question, which the caller closes; None where nothing was asked of it yet."""
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        asked = read_asked(db, folder)
    return None if asked is None else Resume(folder, asked.question)


def mend_ledger(folder: Path) -> list[str]:
    """What was done. InputError where not even the question can be read any more."""
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        if _is_sound(db, folder):
            return []
        asked, steps, files = (list(_readable(db, f"select * from {table}")) for table in ("asked", "steps", "files"))
    try:
        begun = parse_asked(*asked[0])
    except (IndexError, TypeError, ValueError):
        raise FolderError(
            f"{folder / LEDGER} is beyond repair: it no longer says what was asked. Take another folder for the run"
        ) from None
    beside = folder / f"{LEDGER}{LEFTOVER}"
    beside.unlink(missing_ok=True)
    with closing(sqlite3.connect(beside)) as db, db:
        db.executescript(TABLES)
        stored = (json.dumps(plain, sort_keys=True) for plain in (begun.question, begun.versions))
        db.execute("insert into asked values (?, ?)", tuple(stored))
        for step in steps:
            with suppress(sqlite3.Error):  # what was read of it is no step
                db.execute(f"insert into steps values ({', '.join('?' * len(step))})", step)
        db.executemany("insert or ignore into files values (?, ?)", [file for file in files if None not in file])
    (folder / f"{LEDGER}-journal").unlink(missing_ok=True)
    beside.replace(folder / LEDGER)
    return [f"wrote {LEDGER} anew: {len(steps)} steps could be read"]


def drop_damaged(resume: Resume, with_parts: bool) -> list[str]:
    """Takes out steps that are not what was written; with `with_parts` also those whose file is not."""
    dropped = []
    for (key,) in resume.ask("select key from steps where finished = 1"):
        try:
            resume.recall(key, resume.fingerprint(key) or "")
            if with_parts:
                resume.check_part(key)
        except InputError:
            dropped.append(key)
            resume.drop(key)
    return dropped


def _is_sound(db: sqlite3.Connection, folder: Path) -> bool:
    try:
        read_asked(db, folder)
        return bool(db.execute("pragma integrity_check").fetchall() == [("ok",)])
    except (sqlite3.DatabaseError, InputError):
        return False


def _readable(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Rows up to the first that cannot be read."""
    with suppress(sqlite3.Error, UnicodeDecodeError):
        yield from db.execute(query)
