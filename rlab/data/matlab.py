"""Read a record of CPSC 2018 as its authors published it: a MATLAB file with a structure ECG that holds sex, age and data."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from rlab.data.wfdb_files import Floats, Recording, find_stuck

SUFFIX, RATE = ".mat", 500.0  # Hz
LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
_LARGEST = 2**26  # bytes of a file, and of what it unpacks to: an hour of twelve leads
_HEADER, _COMPRESSED = 128, 15  # bytes before the first element, and the type of a compressed one


def read_matlab(path: Path) -> Recording:
    """The record at `path`, without suffix: twelve leads (12, time) in mV at 500 Hz."""
    file = path.with_name(path.name + SUFFIX)
    if not file.is_file():
        raise ValueError(f"there is no file {file.name}")
    values = np.ascontiguousarray(_data(file).T)
    at_ends, at_one = find_stuck(values, RATE)
    none, ones = np.zeros(0, np.int64), np.ones(len(LEADS))
    return Recording(
        files=(file.name,), leads=LEADS, units=("mV",) * len(LEADS), rate=RATE, comments=(), symbols="", annotated=False,
        digital=values, gain=ones, zero=0 * ones, at=none, at_ends=at_ends, at_one=at_one,
    )  # fmt: skip


def _data(file: Path) -> Floats:
    """ECG.data (12, time) of the file."""
    from scipy.io import loadmat

    _check_size(file)
    held = loadmat(file, variable_names=["ECG"]).get("ECG")
    fields: Any = None if held is None else held.dtype.names
    if not fields or "data" not in fields or held.size != 1:
        raise ValueError(f"{file.name} holds no structure ECG with data")
    data = np.asarray(held["data"].flat[0])
    if data.ndim != 2 or len(data) != len(LEADS) or not data.shape[1] or data.dtype.kind not in "fiu":
        raise ValueError(f"expected ECG.data of 12 rows of numbers, got shape {data.shape} of {data.dtype}")
    return data.astype(np.float64)


def _check_size(file: Path) -> None:
    """Refuse a file whose compressed parts would unpack to more than any record holds."""
    size = file.stat().st_size
    if size > _LARGEST:
        raise ValueError(f"{file.name} has {size / 2**20:.0f} MiB, expected at most {_LARGEST / 2**20:.0f}")
    raw, at, total = file.read_bytes(), _HEADER, 0
    order = ">" if raw[126:128] == b"MI" else "<"
    while at + 8 <= len(raw):
        kind, length = struct.unpack(f"{order}II", raw[at : at + 8])
        if kind == _COMPRESSED:
            total += len(zlib.decompressobj().decompress(raw[at + 8 : at + 8 + length], _LARGEST + 1))
        at += 8 + length
        if total > _LARGEST:
            raise ValueError(f"{file.name} unpacks to more than {_LARGEST / 2**20:.0f} MiB")
