"""Files that hold a digest of themselves, so that damage is noticed.

The digest covers every byte of the file but its own digits, so it fits any format: JSON, Parquet and safetensors.
"""

from __future__ import annotations

import hashlib
import os
import re
from mmap import ACCESS_READ, mmap
from pathlib import Path

from rlab.storage.stored import open_stored, too_large

UNSEALED = f"rlab-sha256:{'0' * 64}"  # text in a file, which the digest replaces
_SEAL = re.compile(rb"rlab-sha256:([0-9a-f]{64})")


def sealed(content: bytes) -> bytes:
    """Replace UNSEALED by the digest of the content."""
    return content.replace(UNSEALED.encode(), b"rlab-sha256:" + _digest(content))


def is_intact(path: Path, most: int | None = None) -> bool:
    """Whether the file has not changed since it was sealed; refuse one of more than `most` bytes."""
    with open_stored(path) as file:
        size = file.seek(0, os.SEEK_END)
        if most is not None and size > most:
            raise too_large(path, most)
        if not size:
            return False  # an empty file cannot be mapped
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return _digest(content) in {seal[1] for seal in _SEAL.finditer(content)}


def _digest(content: bytes | mmap) -> bytes:
    whole, at = hashlib.sha256(), 0
    with memoryview(content) as view:
        for seal in _SEAL.finditer(content):
            whole.update(view[at : seal.start(1)])
            whole.update(b"0" * 64)
            at = seal.end(1)
        whole.update(view[at:])
    return whole.hexdigest().encode()
