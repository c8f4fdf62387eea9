"""Turn names from users into safe file names, and keep paths inside their folder."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Collection
from numbers import Integral
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from rlab.errors import FolderError

SAMPLES, ARRAYS, CONFIG, CURVES = "samples.parquet", "arrays.safetensors", "config.yaml", "curves.png"
PICTURES = "pictures"  # folder
SETTING = "setting"  # a key of metadata
_LONGEST, _LONGEST_KEY = 64, 140
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # reserved on some systems


def exact(number: float) -> str:
    """The shortest text of a number that `float` reads back unchanged."""
    text = str(number) if isinstance(number, Integral) else f"{number:g}"
    return text if float(text) == number else repr(float(number))


def file_name(text: str, taken: Collection[str] = ()) -> str:
    """Turn text into a file name of letters, digits and _ . + -, unlike all `taken`: '../a b' becomes 'a-b'.

    Long text is cut and ends in a digest, so that different texts get different names.
    """
    base = re.sub(r"[^A-Za-z0-9_.+-]+|\.\.+", "-", text).lstrip("-.+").rstrip("-.") or "unnamed"
    if len(base) > _LONGEST:
        base = f"{base[: _LONGEST - 13]}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
    base = f"_{base}" if _RESERVED.fullmatch(base) else base
    name, count, used = base, 1, {other.lower() for other in taken}  # some file systems ignore case
    while name.lower() in used:
        count += 1
        name = f"{base}-{count}"
    return name


def key_name(key: str) -> str:
    """The file name of a step; `unquote` gives the key again, or its beginning if the name was cut and ends in a digest."""
    name = quote(key, safe="")
    return (
        name if len(name) <= _LONGEST_KEY else f"{name[:_LONGEST_KEY]}~{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    )


def inside(folder: Path, name: object) -> Path:
    """Return the path of a file that a folder's table names; refuse one outside the folder, also through a link."""
    parts = PurePosixPath(name).parts if isinstance(name, str) and "\0" not in name else ()
    path = folder.joinpath(*parts)
    wrong = not parts or parts[0] == "/" or ".." in parts
    if wrong or not Path(os.path.realpath(path)).is_relative_to(folder.resolve()):
        raise FolderError(f"{folder} names the file {name!r}, which is outside the folder: rlab does not open it")
    return path


def refuse_strange(folder: Path) -> None:
    """Refuse a folder with a link that points outside, through which files elsewhere could be read or overwritten, and one
    with a pipe, a socket or a device, which could block."""
    home = folder.resolve()
    for parent, folders, files in os.walk(home):
        for path in (Path(parent, name) for name in (*folders, *files)):
            try:
                at, mode = str(path.relative_to(home)), path.lstat().st_mode
            except FileNotFoundError:
                continue  # a running command replaced it
            if stat.S_ISLNK(mode) and not Path(os.path.realpath(path)).is_relative_to(home):
                raise FolderError(f"{folder} contains the link {at!r}, which points outside: replace it with the file")
            if not (stat.S_ISLNK(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise FolderError(f"{folder} contains {at!r}, which is a pipe, a socket or a device: remove it")
