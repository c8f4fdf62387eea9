"""Repair a ledger: copy what is still readable into a new one, and drop damaged steps."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rlab.errors import FolderError, InputError
from rlab.storage.ledger import LEDGER, LEFTOVER, TABLES, connect, parse_question, read_question
from rlab.storage.resume import Resume


def reopened(folder: Path) -> Resume | None:
    """Open the folder's steps under its own question; None if it has none yet. The caller closes it."""
    with closing(connect(folder, write=True)) as db:
        question = read_question(db, folder)
    return None if question is None else Resume(folder, question.values)


def mend_ledger(folder: Path) -> list[str]:
    """Rewrite a damaged ledger and say what was done; FolderError if even the question is unreadable."""
    try:
        opened = connect(folder, write=True)
    except FolderError as error:
        raise _lost(folder) if isinstance(error.__cause__, sqlite3.Error) else error from None
    with closing(opened) as db:
        if _is_sound(db, folder):
            return []
        asked, steps, files = (list(_readable(db, f"select * from {name}")) for name in ("asked", "steps", "files"))
    try:
        question = parse_question(*asked[0])
    except (IndexError, TypeError, ValueError):
        raise _lost(folder) from None
    beside = folder / f"{LEDGER}{LEFTOVER}"
    beside.unlink(missing_ok=True)
    with closing(sqlite3.connect(beside)) as new, new:
        new.executescript(TABLES)
        stored = (json.dumps(plain, sort_keys=True) for plain in (question.values, question.versions))
        new.execute("insert into asked values (?, ?)", tuple(stored))
        for step in steps:
            with suppress(sqlite3.Error):  # the row is too damaged to be a step
                new.execute(f"insert into steps values ({', '.join('?' * len(step))})", step)
        new.executemany("insert or ignore into files values (?, ?)", [file for file in files if None not in file])
    (folder / f"{LEDGER}-journal").unlink(missing_ok=True)
    beside.replace(folder / LEDGER)
    return [f"rewrote {LEDGER} with {len(steps)} readable steps"]


def _lost(folder: Path) -> FolderError:
    return FolderError(f"{folder / LEDGER} is beyond repair, its configuration is lost: run the command elsewhere")


def drop_damaged(resume: Resume, with_parts: bool) -> list[str]:
    """Drop damaged steps and, with `with_parts`, steps whose file is damaged; return their keys."""
    dropped = []
    for (key,) in resume.query_ledger("select key from steps where finished = 1"):
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
        read_question(db, folder)
        return bool(db.execute("pragma integrity_check").fetchall() == [("ok",)])
    except (sqlite3.DatabaseError, InputError):
        return False


def _readable(db: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield rows up to the first unreadable one."""
    with suppress(sqlite3.Error, UnicodeDecodeError):
        yield from db.execute(query)
