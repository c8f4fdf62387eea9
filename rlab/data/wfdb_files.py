"""Read the files of one record as they are: digital values, gains, annotations and comments of WFDB files, and the MATLAB files of
CPSC 2018 as its authors published them, with a structure ECG that holds sex, age and data."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import check_room
from rlab.errors import MissingExtra, optional
from rlab.storage.outside import short

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Runs = NDArray[np.int64]  # (runs, 3): lead, first and last + 1 value
FLAT, STUCK = 0.25, 0.05  # seconds at one value that count as flat, and at an extreme of the record as saturated
SLOWEST, FASTEST = 0.01, 1e6  # limits on the rate in Hz
GAP = -32768  # the 16-bit value of a gap
_FLAC, _PACKED = ("508", "516", "524"), 1000  # compressed formats, and how many values a byte may hold in them
_LARGEST = 2**20  # bytes of a header
TWELVE = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")  # the standard leads
MATLAB, CPSC_RATE = ".mat", 500.0  # Hz
_LARGEST_MATLAB = 2**26  # bytes of a file, and of what it unpacks to: an hour of twelve leads
_HEADER, _COMPRESSED = 128, 15  # bytes before the first element, and the type of a compressed one


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything in the files of a record; a physical value is (digital - zero) / gain."""

    files: tuple[str, ...]  # their names
    leads: tuple[str, ...]
    units: tuple[str, ...]
    rate: float  # Hz
    comments: tuple[str, ...]
    symbols: str  # (beats,) a character for each annotation
    annotated: bool  # there is an annotation file
    digital: NDArray[np.int16] | Floats  # (time, leads); in 16 bits GAP is a gap, in floats NaN is
    gain: Floats  # (leads,)
    zero: Floats  # (leads,)
    at: NDArray[np.int64]  # (annotations,) sample numbers
    at_ends: Runs  # where a lead stays at its highest or lowest value
    at_one: Runs  # where a lead stays at any value

    def __post_init__(self) -> None:
        count = len(self.leads)
        shapes = (self.digital.shape[1:], self.gain.shape, self.zero.shape, (len(self.units),))
        if not count or any(shape != (count,) for shape in shapes) or self.at.shape != (len(self.symbols),):
            raise ValueError("its parts do not fit together")
        for runs in (self.at_ends, self.at_one):
            first, last = (0, 0, 0), (count - 1, len(self.digital), len(self.digital))
            if runs.shape[1:] != (3,) or (runs < first).any() or (runs > last).any():
                raise ValueError("its runs do not fit its values")
        if self.digital.dtype not in (np.int16, np.float64) or not SLOWEST <= self.rate <= FASTEST:
            raise ValueError("its values have an unknown form")

    def physical(self, rows: Sequence[int]) -> Floats:
        """Values of these leads (leads, time) in their units; gaps are NaN."""
        chosen = list(rows)
        raw: Floats = np.ascontiguousarray(self.digital[:, chosen].T, np.float64)
        values: Floats = (raw - self.zero[chosen, None]) / self.gain[chosen, None]
        return np.where(raw == GAP, np.nan, values) if self.digital.dtype == np.int16 else values

    def marked(self, runs: Runs, rows: Sequence[int]) -> Flags:
        """Where each of the leads (leads, time) is in one of the runs."""
        out = np.zeros((len(self.leads), len(self.digital)), bool)
        for lead, first, end in runs:
            out[lead, first:end] = True
        return out[list(rows)]


def signal_files(path: Path) -> list[str]:
    """Names of the files of signals, from the header's lines; none if it cannot be read."""
    header = path.with_name(path.name + ".hea")
    try:
        lines = header.read_text("latin-1").splitlines() if header.stat().st_size <= _LARGEST else []
    except OSError:
        return []
    signals = [line.split() for line in lines if line.strip() and not line.startswith("#")][1:]
    return sorted({Path(parts[0]).name for parts in signals})


def read_files(path: Path) -> Recording:
    """Read header, annotations and signals of the record at `path`, without suffix."""
    wfdb = load_wfdb()
    _size_of(path.with_name(path.name + ".hea"))
    header = wfdb.rdheader(str(path))
    if not getattr(header, "sig_name", None) or not header.sig_len:
        raise ValueError("the header lists no signals")
    check_claims(path, header)
    annotated = path.with_name(path.name + ".atr").is_file()
    notes = wfdb.rdann(str(path), "atr") if annotated else None
    frames, skews = header.samps_per_frame or [1], header.skew or [0]
    one_file = len(set(header.file_name)) == 1 and {*frames} <= {None, 1} and not any(skews)
    plain = set(header.fmt) == {"16"} and one_file  # 16-bit values, one of each lead after the other
    digital = _read_plain(path, header) if plain else _read_any(path, header)
    exact = digital.dtype == np.int16
    at_ends, at_one = find_stuck(digital, float(header.fs))
    names = (f"{path.name}.hea", *((f"{path.name}.atr",) if annotated else ()), *sorted(set(header.file_name)))
    return Recording(
        files=names,
        leads=tuple(header.sig_name),
        units=tuple(header.units),
        rate=float(header.fs),
        comments=tuple(header.comments or ()),
        symbols="" if notes is None else "".join(symbol[:1] or " " for symbol in notes.symbol),
        annotated=annotated,
        digital=digital,
        gain=np.array(header.adc_gain if exact else [1.0] * digital.shape[1], np.float64),
        zero=np.array(header.baseline if exact else [0.0] * digital.shape[1], np.float64),
        at=np.array([] if notes is None else notes.sample, np.int64),
        at_ends=at_ends,
        at_one=at_one,
    )


def find_stuck(digital: NDArray[np.int16] | Floats, rate: float) -> tuple[Runs, Runs]:
    """Where the leads of `digital` (time, leads) stay at their highest or lowest value, and where they stay at any."""
    x = np.where(digital == GAP, np.nan, digital.astype(np.float64)).T
    low, high = np.fmin.reduce(x, axis=1)[:, None], np.fmax.reduce(x, axis=1)[:, None]  # of a lead of gaps, NaN
    ends, same = ((x == low) | (x == high)) & (high > low), np.zeros(x.shape, bool)
    same[:, 1:] = x[:, 1:] == x[:, :-1]
    return _runs(ends, max(3, round(STUCK * rate))), _runs(same, max(3, round(FLAT * rate)))


def _runs(flags: Flags, least: int) -> Runs:
    """Runs of at least `least` consecutive true `flags` (leads, time)."""
    steps = np.diff(np.pad(flags, ((0, 0), (1, 1))).astype(np.int8))
    (leads, starts), (_, stops) = np.nonzero(steps == 1), np.nonzero(steps == -1)
    long = stops - starts >= least
    return np.stack([leads[long], starts[long], stops[long]], 1).astype(np.int64)


def _read_plain(path: Path, header: Any) -> NDArray[np.int16]:
    leads, offset = len(header.sig_name), (header.byte_offset or [0])[0] or 0
    file = path.with_name(header.file_name[0])
    values: NDArray[np.int16] = np.fromfile(file, "<i2", header.sig_len * leads, offset=offset).astype(np.int16)
    if len(values) < header.sig_len * leads:
        raise ValueError(f"{file.name} holds {len(values) // leads} of {header.sig_len} values per lead")
    return values.reshape(-1, leads)


def _read_any(path: Path, header: Any) -> NDArray[np.int16] | Floats:
    """Physical values as wfdb reads them, in 16 bits where that is exact."""
    values: Floats = np.asarray(load_wfdb().rdrecord(str(path)).p_signal, np.float64)
    gain, zero = np.array(header.adc_gain, np.float64), np.array(header.baseline, np.float64)
    with np.errstate(invalid="ignore"):
        digital = np.rint(np.where(np.isnan(values), GAP, values * gain + zero))
    if not (np.abs(digital) <= -GAP).all() or (digital == -GAP).any():
        return values
    small = digital.astype(np.int16)
    back = np.where(small == GAP, np.nan, (small - zero) / gain)
    return small if np.array_equal(back, values, equal_nan=True) else values


def check_claims(path: Path, header: Any) -> None:
    """Raise an error if the header declares more values than its files hold, files elsewhere, or an implausible rate."""
    for name, form in zip(header.file_name, header.fmt, strict=True):
        if Path(name).name != name:
            raise ValueError(f"its header names the file {short(name)}, which is in another folder")
        values = _size_of(path.with_name(name)) * (_PACKED if form in _FLAC else 1)
        if header.sig_len * header.file_name.count(name) > values:
            raise ValueError(f"its header declares {header.sig_len} values per lead, but {name} is too short for them")
    if not SLOWEST <= float(header.fs) <= FASTEST:
        raise ValueError(f"its rate is {float(header.fs):g} Hz, expected {SLOWEST:g} to {FASTEST:g}")
    check_room(2, (len(header.sig_name), header.sig_len))


def _size_of(path: Path) -> int:
    """Size of a regular file in bytes; reading a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    return path.stat().st_size


def load_wfdb() -> Any:
    return optional("wfdb", MissingExtra("wfdb", "ecg"))


def read_matlab(path: Path) -> Recording:
    """The record at `path`, without suffix: twelve leads (12, time) in mV at 500 Hz."""
    file = path.with_name(path.name + MATLAB)
    values = np.ascontiguousarray(_data(file).T)
    at_ends, at_one = find_stuck(values, CPSC_RATE)
    none, ones = np.zeros(0, np.int64), np.ones(len(TWELVE))
    return Recording(
        files=(file.name,), leads=TWELVE, units=("mV",) * len(TWELVE), rate=CPSC_RATE, comments=(), symbols="", annotated=False,
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
    if data.ndim != 2 or len(data) != len(TWELVE) or not data.shape[1] or data.dtype.kind not in "fiu":
        raise ValueError(f"expected ECG.data of 12 rows of numbers, got shape {data.shape} of {data.dtype}")
    return data.astype(np.float64)


def _check_size(file: Path) -> None:
    """Refuse a file whose compressed parts would unpack to more than any record holds."""
    if (size := _size_of(file)) > _LARGEST_MATLAB:
        raise ValueError(f"{file.name} has {size / 2**20:.0f} MiB, expected at most {_LARGEST_MATLAB / 2**20:.0f}")
    raw, at, total = file.read_bytes(), _HEADER, 0
    order = ">" if raw[126:128] == b"MI" else "<"
    while at + 8 <= len(raw):
        kind, length = struct.unpack(f"{order}II", raw[at : at + 8])
        if kind == _COMPRESSED:
            total += len(zlib.decompressobj().decompress(raw[at + 8 : at + 8 + length], _LARGEST_MATLAB + 1))
        at += 8 + length
        if total > _LARGEST_MATLAB:
            raise ValueError(f"{file.name} unpacks to more than {_LARGEST_MATLAB / 2**20:.0f} MiB")
