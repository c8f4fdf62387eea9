"""Read the files of a run folder, which may be a stranger's: regular files only, never a link, a pipe or a device.

text = read_stored(folder / "log.json")
table = pq.ParquetFile(stored(folder / "samples.parquet"))  # a library that opens files by name
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from rlab.errors import FolderError

MOST = 2**30  # bytes that are read into memory at once


def open_stored(path: Path) -> BufferedReader:
    """Open the file for reading without ever waiting; OSError if it is missing, FolderError if it is no regular file."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link; a socket or a device without a driver
            raise
        raise strange(path) from None
    try:
        check_regular(number, path)
    except FolderError:
        os.close(number)
        raise
    return os.fdopen(number, "rb")


def check_regular(number: int, path: Path) -> None:
    """Refuse an open file that is not a regular one."""
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise strange(path)


def strange(path: Path) -> FolderError:
    """Return the error for a file that rlab does not open."""
    return FolderError(f"expected {path} to be a regular file, but it is a link, folder, pipe or device: remove it")


def read_stored(path: Path, most: int = MOST) -> bytes:
    """Read a file of at most `most` bytes."""
    with open_stored(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise FolderError(f"{path} has more than {most:,} bytes, so rlab does not read it: restore the original")
    return content


def stored(path: Path) -> Path:
    """Return the path of a file that `open_stored` would open."""
    open_stored(path).close()
    return path
