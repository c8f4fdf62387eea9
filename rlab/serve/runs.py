"""The run folders below one folder. What a request names is looked up among them, so that nothing else is ever opened."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from rlab.errors import InputError
from rlab.storage.ledger import LEDGER, read_question
from rlab.storage.lock import LOCK
from rlab.storage.names import ARRAYS, SAMPLES, inside

State = Literal["finished", "running", "stopped"]
DEEPEST, MOST = 4, 5000  # folders below each other, and runs that are listed
_MARKS = {
    "audit.json": "audit",
    "curves.png": "compare",
    ARRAYS: "attack",
    "manifest.json": "benchmark",
    "log.jsonl": "train",
    "comparison.json": "harden",
    "log.json": "harden",
    "report.json": "benchmark run",
    "scores.csv": "explain",
}  # a file that a finished run of the command leaves, the first that is there tells


class NoSuchRun(Exception):
    """A request named what is not a run below the server's folder."""


@dataclass(frozen=True)
class RunEntry:
    name: str  # its path below the server's folder
    command: str
    state: State
    changed: datetime
    has_samples: bool  # to browse, of a finished attack


def list_runs(root: Path) -> list[RunEntry]:
    """All runs below the folder, the latest first; links are passed over."""
    found = [entry for folder in _folders(root) if (entry := read_entry(root, folder))]
    return sorted(found, key=lambda entry: (entry.changed, entry.name), reverse=True)[:MOST]


def _folders(root: Path) -> Iterator[Path]:
    for parent, folders, _ in os.walk(root):
        here = Path(parent)
        deep = len(here.relative_to(root).parts)
        is_run = deep > 0 and _command(here) is not None
        if deep:
            yield here
        inner = () if is_run or deep >= DEEPEST else folders
        folders[:] = sorted(name for name in inner if not name.startswith(".") and not (here / name).is_symlink())


def find_run(root: Path, name: str) -> Path:
    """The folder of a run; whatever lies elsewhere, by its name or through a link, is no run."""
    try:
        folder = inside(root, name)
        if ".." in name.split("/") or not folder.is_dir() or read_entry(root, folder) is None:
            raise NoSuchRun(name)
    except (InputError, OSError, ValueError) as error:
        raise NoSuchRun(name) from error
    return folder


def read_entry(root: Path, folder: Path) -> RunEntry | None:
    """What the list says of a run; None where the folder is none."""
    command = _command(folder)
    if command is None:
        return None
    state: State = "running" if is_running(folder) else "finished" if _mark(folder) else "stopped"
    changed = datetime.fromtimestamp(folder.stat().st_mtime)
    has_samples = command == "attack" and state == "finished" and (folder / SAMPLES).is_file()
    return RunEntry(folder.relative_to(root).as_posix(), command, state, changed, has_samples)


def _mark(folder: Path) -> str | None:
    found = next((command for name, command in _MARKS.items() if (folder / name).is_file()), None)
    return found or ("explain" if (folder / "pictures").is_dir() and any(folder.glob("*.npz")) else None)


def _command(folder: Path) -> str | None:
    """By what is finished, else by what its ledger was asked, else by who works in it."""
    if found := _mark(folder):
        return found
    if (folder / LEDGER).is_file():
        try:
            with closing(open_ledger(folder)) as db:
                asked = read_question(db, folder)
            return "run" if asked is None else str(asked.values.get("command", "run"))
        except (InputError, sqlite3.Error):
            return "damaged"
    return str(signed(folder).get("command", "run")) if is_running(folder) else None


def open_ledger(folder: Path) -> sqlite3.Connection:
    """For reading only; a run that writes is not kept waiting."""
    return sqlite3.connect(f"{inside(folder, LEDGER).resolve().as_uri()}?mode=ro", uri=True, timeout=1)


def signed(folder: Path) -> dict[str, Any]:
    """Who signed the folder's lock; nothing where there is none."""
    try:
        who = json.loads((folder / LOCK).read_text(encoding="utf-8")[:4096])
        return who if isinstance(who, dict) else {}
    except (OSError, ValueError):
        return {}


def is_running(folder: Path) -> bool:
    """Whether the process that signed the lock is alive, as far as this machine can tell; the lock itself is not touched."""
    who = signed(folder)
    pid, host = who.get("pid"), who.get("host")
    if not isinstance(pid, int) or pid < 1 or not isinstance(host, str):
        return False
    if host != platform.node():
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
