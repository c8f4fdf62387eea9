"""Names that come from outside become files here, and here alone; and a path named inside a folder stays inside it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from rlab.errors import InputError

SAMPLES, ARRAYS, SETTING = "samples.parquet", "arrays.safetensors", "setting"  # of an attack's folder
CONFIG, CURVES = "config.yaml", "curves.png"
_LONGEST = 64
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names some systems keep to themselves


def file_name(text: str, taken: Collection[str] = ()) -> str:
    """'../a b' -> 'a-b': letters, digits and _ . + - of the text, one file of a folder; unlike all that are `taken`.

    A text that is too long ends in a digest, so that two of them stay apart.
    """
    base = re.sub(r"[^A-Za-z0-9_.+-]+|\.\.+", "-", text).lstrip("-.+").rstrip("-.") or "unnamed"
    if len(base) > _LONGEST:
        base = f"{base[: _LONGEST - 13]}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"
    base = f"_{base}" if _RESERVED.fullmatch(base) else base
    name, count, used = base, 1, {other.lower() for other in taken}  # some file systems do not tell A from a
    while name.lower() in used:
        count += 1
        name = f"{base}-{count}"
    return name


def inside(folder: Path, name: object) -> Path:
    """The file that a folder's own table names; refuses one that is not in the folder, by its name or through a link."""
    parts = PurePosixPath(name).parts if isinstance(name, str) and "\0" not in name else ()
    path = folder.joinpath(*parts)
    if (
        not parts
        or parts[0] == "/"
        or ".." in parts
        or not Path(os.path.realpath(path)).is_relative_to(folder.resolve())
    ):
        raise InputError(f"{folder} names the file {name!r}, which is not inside it: no such file is opened")
    return path


def refuse_links(folder: Path) -> None:
    """Refuses a folder with a link that leads out of it: through one, files elsewhere would be read or overwritten."""
    home = folder.resolve()
    for parent, folders, files in os.walk(home):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(home):
                at = path.relative_to(home)
                raise InputError(
                    f"{folder} holds the link {str(at)!r}, which leads out of it: remove it, or copy the file"
                )
