"""Who works in a folder: one process at a time, named in its `run.lock`.

The system holds the lock (flock, also over NFS) and frees it when the process ends, however it ends; the file goes when the
folder is left, and one that a killed process left behind is taken over. A folder that was made for nothing goes with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from rlab.errors import InputError

LOCK = "run.lock"
Waiting = Callable[[str], None]  # hears for whom it waits
_mine = threading.local()  # .held: descriptors by folder, so that the one who holds a folder may open it again


@contextmanager
def hold(
    folder: Path, command: str, fingerprint: str = "", *, wait: Waiting | None = None, new: bool = False
) -> Iterator[None]:
    """Keeps other processes out of the folder, which is made where it is not there; `new`: FileExistsError where it is.

    Where another holds it, `wait` hears who does and the call waits; without `wait` it is refused.
    """
    held: dict[Path, int] = _mine.__dict__.setdefault("held", {})
    where = folder.resolve()
    if where in held and not new:
        if fingerprint:
            _sign(held[where], command, fingerprint)
        yield
        return
    made = [path for path in (where, *where.parents) if not path.exists()]
    if not new and where.exists() and not where.is_dir():
        raise InputError(f"{folder} exists and holds something else: name another folder with --out")
    if new:
        where.mkdir(parents=True)
    try:
        held[where] = _take(where, folder, wait)
        _sign(held[where], command, fingerprint)
        yield
    finally:
        if where in held:
            with suppress(OSError):  # a folder that became read-only: the next one takes the file over
                (where / LOCK).unlink()
            os.close(held.pop(where))
        for path in made:
            with suppress(OSError):  # it holds something by now
                path.rmdir()


def _take(where: Path, folder: Path, wait: Waiting | None) -> int:
    """The lock file's descriptor; file and folder may be gone by the time it is locked, and are then made anew."""
    while True:
        where.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(where / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError:
            continue
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = owner(where)
                if wait is None:
                    raise InputError(
                        f"{folder} is in use by {who}: wait for it with --wait, or name another folder with --out"
                    ) from None
                wait(who)
                fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(where / LOCK)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _sign(file: int, command: str, fingerprint: str) -> None:
    who = {"command": command, "pid": os.getpid(), "host": platform.node(), "fingerprint": fingerprint}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(who | {"since": f"{datetime.now():%Y-%m-%d %H:%M:%S}"}).encode(), 0)


def owner(folder: Path) -> str:
    """Who signed the folder's lock, in words."""
    try:
        who: dict[str, Any] = json.loads((folder / LOCK).read_text())
        return f"`rlab {who['command']}` (process {who['pid']} on {who['host']}, since {who['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
