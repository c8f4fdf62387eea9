"""WFDB records that were read once: wfdb takes 20 ms for a header of twelve leads, a kept record is read in a fraction of one.

Records are kept as safetensors (numbers and text, nothing that can run) below $RLAB_CACHE, by default ~/.cache/rlab. A kept record
names the size and the time stamp of every file it came from and a checksum of its values; if anything differs or is damaged,
the record is read again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from rlab.data.source import stamp
from rlab.data.wfdb_files import MATLAB, Recording, read_files, read_matlab, signal_files
from rlab.progress import PATIENCE, bar
from rlab.storage.files import write_atomically

CACHE = "RLAB_CACHE"  # the folder; empty to keep nothing
VERSION = 1
FEW = 200  # records that a process reads; fewer are read faster in this one
MOST_PROCESSES = 8
ARRAYS = ("digital", "gain", "zero", "at", "at_ends", "at_one")
Stamp = tuple[str, int, int]  # name, size and modification time of a file; -1 if there is none


class Facts(BaseModel):
    """The text of a kept record: its stamps, its checksum, and fields of `Recording`."""

    stamps: tuple[Stamp, ...]
    checksum: int
    leads: tuple[str, ...]
    units: tuple[str, ...]
    rate: float
    comments: tuple[str, ...]
    symbols: str
    annotated: bool


def read_recording(path: Path) -> Recording:
    """The record at `path` (without suffix), from the cache if it holds the record as it is now."""
    file = kept_file(path)
    if file is None:
        return _read(path)
    kept = _read_kept(file, path)
    if kept is not None:
        return kept
    names = (f"{path.name}.hea", f"{path.name}.atr", *(signal_files(path) or (path.name + MATLAB,)))
    before = _stamps(path, names)
    made = _read(path)
    if _stamps(path, names) == before:  # not written to while it was read
        with suppress(OSError):  # a cache that cannot be written only costs time
            _keep(file, made, before)
    return made


def _read(path: Path) -> Recording:
    """The record from its WFDB files or, if it has no header, from a MATLAB file."""
    bare = not path.with_name(f"{path.name}.hea").exists() and path.with_name(path.name + MATLAB).exists()
    return read_matlab(path) if bare else read_files(path)


def kept_file(path: Path) -> str | None:
    """Where the record is kept, None if nothing is."""
    folder, name = os.path.split(path)
    kept = _kept_folder(folder, os.getcwd(), os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME"))
    return None if kept is None else os.path.join(kept, f"{name}.safetensors")


@lru_cache(1000)
def _kept_folder(folder: str, here: str, chosen: str | None, home: str | None) -> str | None:
    """Where the records of a folder are kept."""
    if chosen == "":
        return None
    name = sha256(os.path.join(here, folder).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return os.path.join(chosen or os.path.join(home or os.path.expanduser("~/.cache"), "rlab"), "wfdb", name)


def _stamps(path: Path, names: Sequence[str]) -> tuple[Stamp, ...]:
    """Stamps of the files with these names in the folder of the record."""
    folder = os.path.dirname(path)
    return tuple((name, *stamp(os.path.join(folder, name))) for name in names)


def _keep(file: str, made: Recording, stamps: tuple[Stamp, ...]) -> None:
    from safetensors.numpy import save

    os.makedirs(os.path.dirname(file), 0o700, exist_ok=True)
    arrays = {name: getattr(made, name) for name in ARRAYS}
    facts = Facts.model_validate(vars(made) | {"stamps": stamps, "checksum": _checksum(arrays)})
    write_atomically(Path(file), save(arrays, {"version": str(VERSION), "facts": facts.model_dump_json()}))


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    total = 0
    for name in sorted(arrays):
        total = zlib.crc32(np.ascontiguousarray(arrays[name]).data, total)
    return total


def _read_kept(file: str, path: Path) -> Recording | None:
    """The kept record if it is intact and its files are those of today."""
    from safetensors import safe_open

    try:
        with safe_open(file, framework="numpy") as stored:
            about, arrays = stored.metadata(), {name: stored.get_tensor(name) for name in ARRAYS}
        facts = Facts.model_validate_json(about["facts"])
        today = _stamps(path, [stamp[0] for stamp in facts.stamps])
        own = about["version"] == str(VERSION) and today[0][0] == f"{path.name}.hea"
        if not own or today != facts.stamps or _checksum(arrays) != facts.checksum:
            return None
        files = tuple(stamp[0] for stamp in today if stamp[1] >= 0)
        return Recording(files=files, **facts.model_dump(exclude={"stamps", "checksum"}), **arrays)
    except Exception:  # a damaged file fails in many ways, and the record itself is still there
        return None


def read_ahead_of_time(paths: Sequence[Path]) -> None:
    """Read records that were never read, in several processes if there are many, and keep them."""
    files = {path: kept_file(path) for path in paths}
    missing = [path for path, file in files.items() if file is not None and not os.path.exists(file)]
    count = min(MOST_PROCESSES, os.cpu_count() or 1)
    if len(missing) < FEW or count < 2:
        return
    parts = [missing[at : at + FEW] for at in range(0, len(missing), FEW)]
    with (
        ThreadPoolExecutor(count) as pool,
        bar(len(missing), "reading records, once", unit="records", patience=PATIENCE) as progress,
    ):
        for part in pool.map(_read_elsewhere, parts):
            progress([str(path) for path in part])


def _read_elsewhere(paths: Sequence[Path]) -> Sequence[Path]:
    """Let another process read and keep the records; what it cannot read, the caller reads, and says why."""
    code = "import sys; from rlab.data.wfdb_cache import keep_all; keep_all(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-P", "-c", code, *(os.path.abspath(path) for path in paths)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return paths


def keep_all(paths: Sequence[str]) -> None:
    """Read and keep the records that can be read."""
    for path in paths:
        with suppress(Exception):
            read_recording(Path(path))
