"""WFDB records that were read once: wfdb takes 20 ms for a header of twelve leads, a kept record is read in a fraction of one.

Records are kept as safetensors (numbers and text, nothing that can run) below $RLAB_CACHE, by default ~/.cache/rlab. A kept record
names the size and the time stamp of every file it came from and a checksum of its values; if anything differs or is damaged,
the record is read again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.matlab import SUFFIX, read_matlab
from rlab.data.wfdb_files import Recording, read_files, signal_files
from rlab.progress import PATIENCE, bar
from rlab.storage.files import write_atomically

CACHE = "RLAB_CACHE"  # the folder; empty to keep nothing
VERSION = 1
FEW = 100  # records that are read faster in this process than by starting others
MOST_PROCESSES = 8
ARRAYS = ("digital", "gain", "zero", "at", "at_ends", "at_one")
Stamp = tuple[str, int, int]  # name, size and modification time of a file; -1 if there is none


@dataclass(frozen=True)
class Facts:
    """The text of a kept record."""

    stamps: tuple[Stamp, ...]
    leads: tuple[str, ...]
    units: tuple[str, ...]
    comments: tuple[str, ...]
    symbols: str
    rate: float
    annotated: bool
    checksum: int


def read_recording(path: Path) -> Recording:
    """The record at `path` (without suffix), from the cache if it holds the record as it is now."""
    file = kept_file(path)
    if file is None:
        return _read(path)
    kept = _read_kept(file, path)
    if kept is not None:
        return kept
    names = (f"{path.name}.hea", f"{path.name}.atr", *(signal_files(path) or (path.name + SUFFIX,)))
    before = _stamps(path, names)
    made = _read(path)
    if _stamps(path, names) == before:  # not written to while it was read
        with suppress(OSError):  # a cache that cannot be written only costs time
            _keep(file, made, before)
    return made


def _read(path: Path) -> Recording:
    """The record from its WFDB files or, if it has no header, from a MATLAB file."""
    bare = not path.with_name(f"{path.name}.hea").exists() and path.with_name(path.name + SUFFIX).exists()
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
    return tuple(_stamp(os.path.join(folder, name), name) for name in names)


def _stamp(file: str, name: str) -> Stamp:
    try:
        status = os.stat(file)
    except OSError:
        return name, -1, -1
    return name, status.st_size, status.st_mtime_ns


def _keep(file: str, made: Recording, stamps: tuple[Stamp, ...]) -> None:
    from safetensors.numpy import save

    os.makedirs(os.path.dirname(file), 0o700, exist_ok=True)
    arrays = {name: getattr(made, name) for name in ARRAYS}
    facts = Facts(
        stamps, made.leads, made.units, made.comments, made.symbols, made.rate, made.annotated, _checksum(arrays)
    )
    write_atomically(Path(file), save(arrays, {"version": str(VERSION), "facts": json.dumps(vars(facts))}))


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    total = 0
    for name in sorted(arrays):
        total = zlib.crc32(np.ascontiguousarray(arrays[name]).data, total)
    return total


def _read_kept(file: str, path: Path) -> Recording | None:
    """The kept record if it is intact and its files are those of today."""
    try:
        arrays, facts = _load(file)
        if _stamps(path, [stamp[0] for stamp in facts.stamps]) != facts.stamps:
            return None
        if facts.stamps[0][0] != f"{path.name}.hea" or _checksum(arrays) != facts.checksum:
            return None
        return Recording(
            files=tuple(stamp[0] for stamp in facts.stamps if stamp[1] >= 0), leads=facts.leads, units=facts.units,
            rate=facts.rate, comments=facts.comments, symbols=facts.symbols, annotated=facts.annotated,
            **{name: arrays[name] for name in ARRAYS},
        )  # fmt: skip
    except Exception:  # a damaged file fails in many ways, and the record itself is still there
        return None


def _load(file: str) -> tuple[dict[str, NDArray[Any]], Facts]:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as stored:
        about = stored.metadata()
        if about["version"] != str(VERSION):
            raise ValueError("another version")
        arrays = {name: stored.get_tensor(name) for name in ARRAYS}
    plain = json.loads(about["facts"])
    lists: dict[str, Any] = {name: tuple(map(str, plain[name])) for name in ("leads", "units", "comments")}
    stamps = tuple((os.path.basename(str(name)), int(size), int(time)) for name, size, time in plain["stamps"])
    one: dict[str, Any] = {
        "symbols": str(plain["symbols"]),
        "rate": float(plain["rate"]),
        "annotated": bool(plain["annotated"]),
    }
    return arrays, Facts(stamps=stamps, checksum=int(plain["checksum"]), **lists, **one)


def read_ahead_of_time(paths: Sequence[Path]) -> None:
    """Read records that were never read, in several processes if there are many, and keep them."""
    files = {path: kept_file(path) for path in paths}
    missing = [path for path, file in files.items() if file is not None and not os.path.exists(file)]
    count = min(MOST_PROCESSES, os.cpu_count() or 1, len(missing) // FEW + 1)
    if len(missing) < FEW or count < 2:
        return
    with bar(len(missing), "reading records, once", unit="records", patience=PATIENCE) as progress:
        _share(missing, count, lambda: progress(("",)))


def _share(paths: Sequence[Path], count: int, done: Callable[[], None]) -> None:
    """Let `count` processes read the records; what they cannot read, the caller reads, and says why."""
    command = [sys.executable, "-P", "-c", "from rlab.data.wfdb_cache import main; main()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, env=environment, text=True, **pipes) for _ in range(count)]
    try:
        threads = [Thread(target=_feed, args=(process, paths[at::count], done)) for at, process in enumerate(processes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _feed(process: subprocess.Popen[str], paths: Sequence[Path], done: Callable[[], None]) -> None:
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018
    with suppress(OSError):  # the process ended
        process.stdin.write(json.dumps([os.path.abspath(path) for path in paths]))
        process.stdin.close()
        for _ in process.stdout:
            done()


def main() -> None:
    """Read the records that standard input lists and print a line for each."""
    for path in json.load(sys.stdin):
        with suppress(Exception):  # the process that asked reads it again and says what is wrong
            read_recording(Path(path))
        sys.stdout.write("\n")
        sys.stdout.flush()
