"""One WFDB record: header and beats, and its leads as values at the rate and scale asked for. Nothing is filled in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import Scaling, check_room
from rlab.errors import InputError, MissingExtra
from rlab.storage.outside import short

AAMI = {"N": "NLRBej", "S": "AaJSn", "V": "VEr", "F": "F", "Q": "/fQ?"}  # ANSI/AAMI EC57 classes of beat symbols
CLASS_OF = {symbol: name for name, symbols in AAMI.items() for symbol in symbols}
FLAT, STUCK = 0.25, 0.05  # seconds of one value: anywhere, and at the highest or lowest value of the record
SLOWEST, FASTEST, FURTHEST = 0.01, 1e6, 100.0  # Hz, and the largest factor between a rate and the one asked for
_FLAC, _PACKED = ("508", "516", "524"), 1000  # compressed formats, and how many values a byte of them may hold
Loss = tuple[str, str]  # (id, why) of what cannot be used
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Record:
    """A record's header and beats, in time steps of `rate`; the signal itself is read when it is cut."""

    name: str
    path: Path
    leads: tuple[str, ...]
    units: tuple[str, ...]
    native: float  # Hz it was recorded at
    rate: float  # Hz it is read at
    length: int
    at: NDArray[np.int64]  # (beats,) sample of each R
    classes: tuple[str, ...]  # (beats,) AAMI class of each

    def unit(self, leads: Sequence[str]) -> str:
        """The unit of these leads, or their units where they differ."""
        return ", ".join(dict.fromkeys(self.units[self.leads.index(lead)] for lead in leads))


@dataclass(frozen=True)
class Values:
    """A record's leads (leads, time), and where each of them is stuck."""

    values: Floats
    saturated: Flags
    flat: Flags


def read_headers(paths: Sequence[Path], rate: float | None, annotated: bool) -> tuple[list[Record], list[Loss]]:
    """The records that can be read, and (name, why) of those that cannot."""
    records: list[Record] = []
    left_out: list[Loss] = []
    for path in paths:
        try:
            records.append(read_header(path, rate, annotated))
        except MissingExtra:
            raise
        except InputError as error:
            left_out.append((path.name, str(error)))
        except Exception as error:  # what wfdb raises on a broken file can be nearly anything
            left_out.append((path.name, f"cannot be read: {error or type(error).__name__}"))
    if not records:
        raise InputError(f"none of {len(paths)} WFDB records can be read{reason(left_out)}")
    return records, left_out


def read_header(path: Path, rate: float | None = None, annotated: bool = False) -> Record:
    """Header, and beats where there are annotations; without them a record that needs them is refused."""
    wfdb = _wfdb()
    _size_of(path.with_name(path.name + ".hea"))
    header = wfdb.rdheader(str(path))
    if not getattr(header, "sig_name", None) or not header.sig_len:
        raise ValueError("the header names no signals")
    _check_claims(path, header, rate)
    has_beats = path.with_name(path.name + ".atr").is_file()
    if annotated and not has_beats:
        raise InputError(f"has no annotation file {path.name}.atr")
    notes = wfdb.rdann(str(path), "atr") if has_beats else None
    pairs = [] if notes is None else list(zip(notes.sample, notes.symbol, strict=True))
    beats = [(int(at), CLASS_OF[symbol]) for at, symbol in pairs if symbol in CLASS_OF]
    ratio = _ratio(float(header.fs), rate)
    return Record(
        name=path.name,
        path=path,
        leads=tuple(header.sig_name),
        units=tuple(header.units),
        native=float(header.fs),
        rate=float(header.fs) if rate is None else rate,
        length=-(-int(header.sig_len) * ratio.numerator // ratio.denominator),
        at=np.array([round(at * ratio) for at, _ in beats], np.int64),
        classes=tuple(name for _, name in beats),
    )


def _check_claims(path: Path, header: Any, rate: float | None) -> None:
    """Refuses a header that tells of more than its files hold, of files elsewhere, or of rates nobody records at."""
    for name, form in zip(header.file_name, header.fmt, strict=True):
        if Path(name).name != name:
            raise ValueError(f"its header names the file {short(name)}, which is not beside it")
        values = _size_of(path.with_name(name)) * (_PACKED if form in _FLAC else 1)
        if header.sig_len * header.file_name.count(name) > values:
            raise ValueError(f"its header tells of {header.sig_len} values a lead, and {name} is too short for them")
    native = float(header.fs)
    if not SLOWEST <= native <= FASTEST:
        raise ValueError(f"its rate is {native:g} Hz, expected {SLOWEST:g} to {FASTEST:g}")
    if rate is not None and not 1 / FURTHEST <= rate / native <= FURTHEST:
        raise InputError(f"has rate {native:g}, too far from {rate:g} to be resampled")
    check_room(2, (len(header.sig_name), math.ceil(header.sig_len * max(1.0, (rate or native) / native))))


def _size_of(path: Path) -> int:
    """Bytes; a pipe or a device would never end."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    return path.stat().st_size


def alike(records: Sequence[Record], leads: Sequence[str] | None) -> tuple[list[Record], tuple[str, ...], list[Loss]]:
    """Records of the first one's rate and unit that have the leads, the leads, and (name, why) of the others."""
    rate = records[0].rate
    same = [r for r in records if r.rate == rate]
    names = tuple(leads or (lead for lead in same[0].leads if all(lead in r.leads for r in same)))
    having = [r for r in same if names and set(names) <= set(r.leads)]
    if not having:
        every = sorted({lead for r in same for lead in r.leads})
        asked = f"no record has the leads {', '.join(leads)}" if leads else "the records share no lead"
        raise InputError(f"{asked}: pass leads, some of {', '.join(every)}, or records that share one")
    unit = having[0].unit(names)
    advice = "pass rate to resample all records"
    odd = [(r.name, f"has rate {r.rate:g}, not {rate:g}: {advice}") for r in records if r.rate != rate]
    odd += [(r.name, f"has leads {', '.join(r.leads)}, not {', '.join(names)}") for r in same if r not in having]
    odd += [(r.name, f"is in {r.unit(names)}, not {unit}") for r in having if r.unit(names) != unit]
    return [r for r in having if r.unit(names) == unit], names, odd


def read_values(record: Record, leads: Sequence[str], scaling: Scaling | None = None) -> Values:
    """The leads at the record's rate; a gap (NaN) stays one, and grows by the resampling filter's reach."""
    read = _wfdb().rdrecord(str(record.path)).p_signal
    raw: Floats = np.ascontiguousarray(read[:, [record.leads.index(lead) for lead in leads]].T, np.float64)
    ratio = _ratio(record.native, record.rate)
    length = -(-raw.shape[1] * ratio.numerator // ratio.denominator)
    if length != record.length:
        raise ValueError(f"holds {length} of {record.length} samples")
    saturated, flat = find_stuck(raw, record.native)
    values = standardise(resample(raw, ratio)) if scaling == "record" else resample(raw, ratio)
    near = np.minimum((np.arange(length) / ratio.numerator * ratio.denominator).round(), raw.shape[1] - 1).astype(int)
    return Values(values, saturated[:, near], flat[:, near])


def resample(x: Floats, ratio: Fraction) -> Floats:
    """(leads, time) at `ratio` times the rate, through a polyphase filter that keeps what the new rate can carry."""
    if ratio == 1:
        return x
    from scipy.signal import resample_poly

    level = np.nanmedian(_with_values(x), axis=-1, keepdims=True)  # the ends are padded with zeros
    out: Floats = resample_poly(x - level, ratio.numerator, ratio.denominator, axis=1) + level
    return out


def standardise(x: Floats) -> Floats:
    """(..., time) with mean 0 and standard deviation 1 along time, gaps passed over; a flat line becomes 0."""
    values = _with_values(x)
    deviation = np.nanstd(values, axis=-1, keepdims=True)
    out: Floats = (x - np.nanmean(values, axis=-1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return out


def find_stuck(x: Floats, rate: float) -> tuple[Flags, Flags]:
    """(leads, time) -> where a lead is saturated, and where it is a flat line, both (leads, time)."""
    same = np.zeros(x.shape, bool)
    same[:, 1:] = x[:, 1:] == x[:, :-1]
    values = _with_values(x)
    low, high = np.nanmin(values, axis=1, keepdims=True), np.nanmax(values, axis=1, keepdims=True)
    ends = ((x == low) | (x == high)) & (high > low)
    stuck = np.stack([_runs(lead, max(3, round(STUCK * rate))) for lead in ends])
    flat = np.stack([_runs(lead, max(3, round(FLAT * rate))) for lead in same])
    return stuck, flat


def _with_values(x: Floats) -> Floats:
    """(..., time) with zeros for leads that hold nothing but gaps, so that their statistics are defined."""
    return np.where(np.isfinite(x).any(-1, keepdims=True), x, 0.0)


def _runs(flags: Flags, least: int) -> Flags:
    """(time,) true where `flags` is true for at least `least` steps on end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    out = np.zeros(len(flags), bool)
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        out[start:stop] = stop - start >= least
    return out


def _ratio(native: float, rate: float | None) -> Fraction:
    return Fraction(1) if rate is None or rate == native else Fraction(rate / native).limit_denominator(1000)


def reason(left_out: Sequence[Loss]) -> str:
    return f": {left_out[0][0]} {left_out[0][1]}" if left_out else ": they hold none"


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtra("wfdb", "ecg") from error
    return wfdb
