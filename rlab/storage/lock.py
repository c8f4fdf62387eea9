"""One process at a time works in a folder; its `run.lock` names it.

The operating system holds the lock (`filelock`, also over NFS) and releases it when the process ends, even by kill -9. Leaving
the folder removes the file, and the next process takes over a file that a killed one left behind. An unused folder is removed too.
"""

from __future__ import annotations

import json
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rlab.errors import FolderError
from rlab.storage.run_file import RUN
from rlab.storage.stored import read_stored, stored

LOCK = "run.lock"
MOST_SIGNED = 4096  # bytes of it
Waiting = Callable[[str], None]  # called with the owner's description before the process waits for it
_thread = threading.local()  # .held: see `held_locks`


def held_locks() -> dict[Path, FileLock]:
    """Return this thread's locks by folder; a thread may open a folder that it holds again."""
    held: dict[Path, FileLock] = _thread.__dict__.setdefault("held", {})
    return held


@contextmanager
def hold(folder: Path, command: str, *, wait: Waiting | None = None, new: bool = False) -> Iterator[None]:
    """Create the folder if needed and keep other processes out of it; `new` raises FileExistsError if it exists.

    A run on a read-only medium needs no lock, since nobody writes there. If another process holds the folder, call `wait`
    with a description of that process and wait; without `wait`, raise FolderError.
    """
    held = held_locks()
    where = folder.resolve()
    if where in held and not new:
        yield
        return
    created = [path for path in (where, *where.parents) if not path.exists()]
    if not new and where.exists() and not where.is_dir():
        raise FolderError(f"{folder} exists and holds something else: name another folder with --out")
    if new:
        where.mkdir(parents=True)
    if is_read_only(where):
        yield
        return
    try:
        held[where] = _acquire(where, folder, wait)
        _sign(where / LOCK, command)
        yield
    finally:
        if where in held:
            with suppress(OSError):  # the next process takes over what is left
                (where / LOCK).unlink()
        for path in created:
            with suppress(OSError):  # it is no longer empty
                path.rmdir()
        if where in held:  # last: a process that waits may use the folder from here on
            held.pop(where).release()


def is_read_only(folder: Path) -> bool:
    """Whether the folder holds a run and nothing can be written there."""
    return (folder / RUN).is_file() and not os.access(folder, os.W_OK)


def _acquire(where: Path, folder: Path, wait: Waiting | None) -> FileLock:
    """Lock the file; start over if the folder is removed in the meantime."""
    while True:
        where.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            stored(where / LOCK)  # raises a sentence if it is no regular file
        lock = FileLock(where / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            who = owner(where)
            if wait is None:
                instead = "wait for it with --wait, or name another folder with --out"
                raise FolderError(f"{folder} is in use by {who}: {instead}") from None
            wait(who)
            with suppress(FileNotFoundError):
                lock.acquire()
        except FileNotFoundError:
            continue
        if lock.is_locked and (where / LOCK).exists():  # else the process that left the folder has removed the file
            return lock
        lock.release()


def _sign(path: Path, command: str) -> None:
    since = f"{datetime.now():%Y-%m-%d %H:%M:%S}"
    path.write_text(json.dumps({"command": command, "pid": os.getpid(), "host": platform.node(), "since": since}))


def owner(folder: Path) -> str:
    """Describe the process that holds the folder's lock."""
    try:
        who: dict[str, Any] = json.loads(read_stored(folder / LOCK, MOST_SIGNED))
        return f"`rlab {who['command']}` (process {who['pid']} on {who['host']}, since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
