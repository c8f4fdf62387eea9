"""Read the WFDB files of one record as they are: digital values, gains, annotations and comments."""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything in the files of a record; a physical value is (digital - zero) / gain."""

    files: tuple[str, ...]  # their names
    leads: tuple[str, ...]
    units: tuple[str, ...]
    rate: float  # Hz
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


@dataclass(frozen=True)
class Header:
    """A header file, lead by lead."""

    leads: tuple[str, ...]
    units: tuple[str, ...]
    rate: float  # Hz
    length: int
    comments: tuple[str, ...]
    files: tuple[str, ...]
    formats: tuple[str, ...]
    gain: Floats
    zero: Floats
    offset: int  # bytes before the first value
    plain: bool  # 16-bit values in one file, one of each lead after the other


def read_header(path: Path) -> Header:
    """The header of the record at `path`, without suffix; wfdb.rdheader takes twenty times as long."""
    load_wfdb()
    from wfdb.io.header import parse_header_content, rx_record, rx_signal

    file = path.with_name(path.name + ".hea")
    if _size_of(file) > _LARGEST:
        raise ValueError(f"its header has more than {_LARGEST:,} bytes")
    lines, comments = parse_header_content(file.read_text("ascii", "ignore"))
    record, signals = rx_record.match(lines[0]) if lines else None, [rx_signal.match(line) for line in lines[1:]]
    if record is None or record["n_seg"] or None in signals or not int(record["sig_len"] or 0):
        raise ValueError("the header lists no signals")
    leads = [signal.groupdict() for signal in signals]
    files, formats = (tuple(lead[name] for lead in leads) for name in ("file_name", "fmt"))
    alone = all(lead["samps_per_frame"] in ("", "1") and not int(lead["skew"] or 0) for lead in leads)
    return Header(
        leads=tuple(lead["sig_name"] for lead in leads),
        units=tuple(lead["units"] or "mV" for lead in leads),
        rate=float(record["fs"] or 250),
        length=int(record["sig_len"]),
        comments=tuple(comment.strip(" \t#") for comment in comments),
        files=files,
        formats=formats,
        gain=np.array([float(lead["adc_gain"] or 0) or 200.0 for lead in leads]),
        zero=np.array([float(lead["baseline"] or lead["adc_zero"] or 0) for lead in leads]),
        offset=int(leads[0]["byte_offset"] or 0) if leads else 0,
        plain=alone and len(set(files)) == 1 and set(formats) == {"16"},
    )


def read_recording(path: Path) -> Recording:
    """Read header, annotations and signals of the record at `path`, without suffix."""
    header = read_header(path)
    if not all(header.leads):
        raise ValueError("the header lists no signals")
    check_claims(path, header)
    annotated = path.with_name(path.name + ".atr").is_file()
    notes = load_wfdb().rdann(str(path), "atr") if annotated else None
    digital = _read_plain(path, header) if header.plain else _read_any(path, header)
    exact, ones = digital.dtype == np.int16, np.ones(len(header.leads))
    at_ends, at_one = find_stuck(digital, header.rate)
    return Recording(
        files=(f"{path.name}.hea", *((f"{path.name}.atr",) if annotated else ()), *sorted(set(header.files))),
        leads=header.leads,
        units=header.units,
        rate=header.rate,
        symbols="" if notes is None else "".join(symbol[:1] or " " for symbol in notes.symbol),
        annotated=annotated,
        digital=digital,
        gain=header.gain if exact else ones,
        zero=header.zero if exact else 0 * ones,
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


def _read_plain(path: Path, header: Header) -> NDArray[np.int16]:
    count, file = len(header.leads), path.with_name(header.files[0])
    values: NDArray[np.int16] = np.fromfile(file, "<i2", header.length * count, offset=header.offset).astype(np.int16)
    if len(values) < header.length * count:
        raise ValueError(f"{file.name} holds {len(values) // count} of {header.length} values per lead")
    return values.reshape(-1, count)


def _read_any(path: Path, header: Header) -> NDArray[np.int16] | Floats:
    """Physical values as wfdb reads them, in 16 bits where that is exact."""
    values: Floats = np.asarray(load_wfdb().rdrecord(str(path)).p_signal, np.float64)
    with np.errstate(invalid="ignore"):
        digital = np.rint(np.where(np.isnan(values), GAP, values * header.gain + header.zero))
    if not (np.abs(digital) <= -GAP).all() or (digital == -GAP).any():
        return values
    small = digital.astype(np.int16)
    back = np.where(small == GAP, np.nan, (small - header.zero) / header.gain)
    return small if np.array_equal(back, values, equal_nan=True) else values


def check_claims(path: Path, header: Header) -> None:
    """Raise an error if the header declares more values than its files hold, files elsewhere, or an implausible rate."""
    for name, form in zip(header.files, header.formats, strict=True):
        if Path(name).name != name:
            raise ValueError(f"its header names the file {short(name)}, which is in another folder")
        values = _size_of(path.with_name(name)) * (_PACKED if form in _FLAC else 1)
        if header.length * header.files.count(name) > values:
            raise ValueError(f"its header declares {header.length} values per lead, but {name} is too short for them")
    if not SLOWEST <= header.rate <= FASTEST:
        raise ValueError(f"its rate is {header.rate:g} Hz, expected {SLOWEST:g} to {FASTEST:g}")
    check_room(2, (len(header.leads), header.length))


def _size_of(path: Path) -> int:
    """Size of a regular file in bytes; reading a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    return path.stat().st_size


def load_wfdb() -> Any:
    return optional("wfdb", MissingExtra("wfdb", "ecg"))
