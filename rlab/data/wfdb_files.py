"""Read the WFDB files of one record: its header, its annotated beats, and its leads in their units."""

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
FLAT, STUCK = 0.25, 0.05  # seconds at one value that count as flat, and at an extreme of the record as saturated
SLOWEST, FASTEST = 0.01, 1e6  # limits on the rate in Hz
GAP = -32768  # the 16-bit value of a gap
_FLAC, _PACKED = ("508", "516", "524"), 1000  # compressed formats, and how many values a byte may hold in them
_LARGEST = 2**20  # bytes of a header
TWELVE = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")  # the standard leads


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
    """The header of the record at `path`, without suffix, checked against its files; wfdb.rdheader takes twenty times as long."""
    load_wfdb()
    from wfdb.io.header import parse_header_content, rx_record, rx_signal

    file = path.with_name(path.name + ".hea")
    if _size_of(file) > _LARGEST:
        raise ValueError(f"its header has more than {_LARGEST:,} bytes")
    lines, comments = parse_header_content(file.read_text("ascii", "ignore"))
    record, signals = rx_record.match(lines[0]) if lines else None, [rx_signal.match(line) for line in lines[1:]]
    if record is None or record["n_seg"] or not signals or None in signals or not int(record["sig_len"] or 0):
        raise ValueError("the header lists no signals")
    leads = [signal.groupdict() for signal in signals]
    files, formats = (tuple(lead[name] for lead in leads) for name in ("file_name", "fmt"))
    alone = all(lead["samps_per_frame"] in ("", "1") and not int(lead["skew"] or 0) for lead in leads)
    header = Header(
        leads=tuple(lead["sig_name"] for lead in leads),
        units=tuple(lead["units"] or "mV" for lead in leads),
        rate=float(record["fs"] or 250),
        length=int(record["sig_len"]),
        comments=tuple(comment.strip(" \t#") for comment in comments),
        files=files,
        formats=formats,
        gain=np.array([float(lead["adc_gain"] or 0) or 200.0 for lead in leads]),
        zero=np.array([float(lead["baseline"] or lead["adc_zero"] or 0) for lead in leads]),
        offset=int(leads[0]["byte_offset"] or 0),
        plain=alone and len(set(files)) == 1 and set(formats) == {"16"},
    )
    if not all(header.leads):
        raise ValueError("the header lists no signals")
    check_claims(path, header)
    return header


def read_beats(path: Path) -> tuple[NDArray[np.int64], str]:
    """Sample numbers (n,) and symbols, a character each, in the annotation file of a record."""
    notes = load_wfdb().rdann(str(path), "atr")
    return np.array(notes.sample, np.int64), "".join(symbol[:1] or " " for symbol in notes.symbol)


def read_leads(path: Path, header: Header, rows: Sequence[int]) -> Floats:
    """Values (leads, time) of the leads at these positions, in their units; gaps are NaN."""
    chosen = list(rows)
    if not header.plain:
        every: Floats = np.asarray(load_wfdb().rdrecord(str(path)).p_signal, np.float64)
        return np.ascontiguousarray(every.T[chosen])
    count, file = len(header.leads), path.with_name(header.files[0])
    raw = np.fromfile(file, "<i2", header.length * count, offset=header.offset)
    if len(raw) < header.length * count:
        raise ValueError(f"{file.name} holds {len(raw) // count} of {header.length} values per lead")
    digital: Floats = np.ascontiguousarray(raw.reshape(-1, count)[:, chosen].T, np.float64)
    return np.where(digital == GAP, np.nan, (digital - header.zero[chosen, None]) / header.gain[chosen, None])


def find_stuck(x: Floats, rate: float) -> tuple[Flags, Flags]:
    """Where leads (leads, time) stay at their highest or lowest value, and where they stay at any."""
    low, high = np.fmin.reduce(x, axis=1)[:, None], np.fmax.reduce(x, axis=1)[:, None]  # of a lead of gaps, NaN
    ends, same = ((x == low) | (x == high)) & (high > low), np.zeros(x.shape, bool)
    same[:, 1:] = x[:, 1:] == x[:, :-1]
    return _long(ends, max(3, round(STUCK * rate))), _long(same, max(3, round(FLAT * rate)))


def _long(flags: Flags, least: int) -> Flags:
    """The true `flags` (leads, time) that have at least `least` true neighbours in a row, themselves included."""
    steps = np.diff(np.pad(flags, ((0, 0), (1, 1))).astype(np.int8))
    (leads, starts), (_, stops) = np.nonzero(steps == 1), np.nonzero(steps == -1)
    long, edges = stops - starts >= least, np.zeros(steps.shape, np.int8)
    edges[leads[long], starts[long]] += 1
    edges[leads[long], stops[long]] -= 1
    inside: Flags = edges.cumsum(1)[:, :-1] > 0
    return inside


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
