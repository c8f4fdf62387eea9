"""The run folders below the server's folder. Requests name one of these runs, so that nothing else is ever opened."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from rlab.errors import InputError
from rlab.folders.finished import is_finished, verb_of
from rlab.present.report import REPORT, Glance, read_glance
from rlab.storage.lock import LOCK, MOST_SIGNED
from rlab.storage.names import SAMPLES, inside
from rlab.storage.run_file import PARTS, RUN, stored_command
from rlab.storage.stored import read_stored

State = Literal["finished", "running", "stopped"]
DEEPEST, MOST = 4, 5000  # maximum depth of a run, and maximum number of runs in the list
SILENT = 24 * 3600.0  # seconds without a write after which a run on another machine counts as stopped

Stamp = tuple[tuple[str, int, int], ...]  # name, time of the last change and size of what decides a run's row


class NoSuchRun(Exception):
    """A request names something that is not a run below the server's folder."""


@dataclass(frozen=True)
class RunEntry:
    name: str  # path below the server's folder
    command: str
    state: State
    changed: datetime
    attack: str = ""  # the run whose samples can be browsed: itself, or the attack of an audit
    glance: Glance | None = None


def list_runs(root: Path) -> list[RunEntry]:
    """All runs below the folder, the latest first; links are not followed."""
    return sorted(_entries(root), key=lambda entry: (entry.changed, entry.name), reverse=True)[:MOST]


def _entries(root: Path) -> Iterator[RunEntry]:
    for parent, folders, _ in os.walk(root):
        here = Path(parent)
        depth = len(here.relative_to(root).parts)
        entry = read_entry(root, here) if depth else None
        if entry is not None:
            yield entry
        inner = () if entry is not None or depth >= DEEPEST else folders
        folders[:] = sorted(name for name in inner if not name.startswith(".") and not (here / name).is_symlink())


def find_run(root: Path, name: str) -> Path:
    """The folder of a run; a path or a link that leads out of the server's folder is not a run."""
    try:
        folder = inside(root, name)
        if ".." in name.split("/") or not folder.is_dir() or read_entry(root, folder) is None:
            raise NoSuchRun(name)
    except (InputError, OSError, ValueError) as error:
        raise NoSuchRun(name) from error
    return folder


def read_entry(root: Path, folder: Path) -> RunEntry | None:
    """The run's row in the list; None if the folder is not a run. Folders that did not change are not read again."""
    try:
        with os.scandir(folder) as entries:
            inner = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    except OSError:
        return None  # it may not be read, or is gone
    names = {name for name, _ in inner}
    decisive = [".", *sorted(name for name, is_folder in inner if is_folder), *({RUN, REPORT} & names)]
    stamp = tuple((name, s.st_mtime_ns, s.st_size) for name in decisive if (s := status_of(folder / name)))
    return _read_entry(root, folder, stamp, LOCK in names and is_running(folder))


def status_of(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None  # removed in the meantime


@lru_cache(maxsize=2 * MOST)
def _read_entry(root: Path, folder: Path, stamp: Stamp, running: bool) -> RunEntry | None:
    verb, name = verb_of(folder), folder.relative_to(root).as_posix()
    if verb is not None:
        command = verb.name
    elif (folder / RUN).is_file():
        stored = stored_command(folder)
        if stored:
            return None  # a folder that holds runs but is of no kind itself
        command = "damaged" if stored is None else "run"
    elif running:
        command = str(signed(folder).get("command", "run"))
    else:
        return None
    changed = datetime.fromtimestamp(folder.stat().st_mtime)
    if running or verb is None or not is_finished(verb, folder):
        return RunEntry(name, command, "running" if running else "stopped", changed)
    attacks = {"attack": name, "audit": f"{name}/attack" if (folder / "attack" / SAMPLES).is_file() else ""}
    return RunEntry(name, command, "finished", changed, attacks.get(command, ""), read_glance(folder))


def signed(folder: Path) -> dict[str, Any]:
    """The process that holds the folder's lock; empty if none does."""
    try:
        who = json.loads(read_stored(folder / LOCK, MOST_SIGNED))
        return who if isinstance(who, dict) else {}
    except (OSError, ValueError):
        return {}


def is_running(folder: Path) -> bool:
    """Whether the process that holds the lock is alive, as far as this machine can tell; the lock is not touched."""
    who = signed(folder)
    pid, host = who.get("pid"), who.get("host")
    if not isinstance(pid, int) or pid < 1 or not isinstance(host, str):
        return False
    if host != platform.node():
        changes = (status.st_mtime for name in (LOCK, RUN, PARTS) if (status := status_of(folder / name)))
        return time.time() - max(changes, default=0.0) < SILENT
    try:
        with suppress(PermissionError):  # a process of another user
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
