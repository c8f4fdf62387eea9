"""Read the files of a run folder, which may be a stranger's: regular files only, never a link, a pipe or a device.

A file is written as a whole or not at all.

text = read_stored(folder / "log.json")
table = pq.ParquetFile(stored(folder / "samples.parquet"))  # a library that opens files by name
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

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
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise strange(path)
    return os.fdopen(number, "rb")


def strange(path: Path) -> FolderError:
    """Return the error for a file that rlab does not open."""
    return FolderError(f"expected {path} to be a regular file, but it is a link, folder, pipe or device: remove it")


def read_stored(path: Path, most: int = MOST) -> bytes:
    """Read a file of at most `most` bytes."""
    with open_stored(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise too_large(path, most)
    return content


def too_large(path: Path, most: int) -> FolderError:
    """Return the error for a file that does not fit into memory."""
    return FolderError(f"{path} has more than {most:,} bytes, so rlab does not read it: restore the original")


def stored(path: Path) -> Path:
    """Return the path of a file that `open_stored` would open."""
    open_stored(path).close()
    return path


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that replaces `path` once it is completely written; on an error `path` does not change.

    Its temporary name is unpredictable and must be new; a link at `path` is replaced, not followed.
    """
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    file = os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write the whole file or, on an error, leave the old one unchanged."""
    with replacing(path) as file:
        file.write(content)
