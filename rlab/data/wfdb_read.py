"""Read one WFDB record: its header, its beats, and its leads at the requested rate and scale. Gaps stay gaps."""

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
from rlab.data.source import Loss
from rlab.errors import DataError, InputError, MissingExtra, OptionError
from rlab.progress import PATIENCE, bar
from rlab.storage.outside import short

AAMI = {"N": "NLRBej", "S": "AaJSn", "V": "VEr", "F": "F", "Q": "/fQ?"}  # ANSI/AAMI EC57 classes of beat symbols
CLASS_OF = {symbol: name for name, symbols in AAMI.items() for symbol in symbols}
FLAT, STUCK = 0.25, 0.05  # seconds at one value that count as flat, and at an extreme of the record as saturated
SLOWEST, FASTEST, FURTHEST = 0.01, 1e6, 100.0  # limits on the rate in Hz, and on the factor of resampling
_FLAC, _PACKED = ("508", "516", "524"), 1000  # compressed formats, and the most values that one byte may encode
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Record:
    """Header and beats of a record, in time steps of `rate`; the signal is read later."""

    name: str
    path: Path
    leads: tuple[str, ...]
    units: tuple[str, ...]
    native: float  # Hz of the recording
    rate: float  # Hz after resampling
    length: int
    at: NDArray[np.int64]  # (beats,) sample number of each R
    classes: tuple[str, ...]  # (beats,) AAMI class of each beat

    def unit(self, leads: Sequence[str]) -> str:
        """The unit of these leads, or their units if they differ."""
        return ", ".join(dict.fromkeys(self.units[self.leads.index(lead)] for lead in leads))


@dataclass(frozen=True)
class Values:
    """Values of the leads (leads, time), and where they are saturated or flat."""

    values: Floats
    saturated: Flags
    flat: Flags


def read_headers(paths: Sequence[Path], rate: float | None, annotated: bool) -> tuple[list[Record], list[Loss]]:
    """The readable records, and (name, reason) of the others."""
    records: list[Record] = []
    left_out: list[Loss] = []
    with bar(len(paths), "reading headers", unit="records", patience=PATIENCE) as progress:
        for path in paths:
            try:
                records.append(read_header(path, rate, annotated))
            except MissingExtra:
                raise
            except InputError as error:
                left_out.append((path.name, str(error)))
            except Exception as error:  # wfdb raises many kinds of errors on broken files
                left_out.append((path.name, f"cannot be read: {str(error) or type(error).__name__}"))
            progress([path])
    if not records:
        raise DataError(f"none of {len(paths)} WFDB records can be read{reason(left_out)}")
    return records, left_out


def read_header(path: Path, rate: float | None = None, annotated: bool = False) -> Record:
    """Read the header, and the beats if there are any; `annotated` requires them."""
    wfdb = _wfdb()
    _size_of(path.with_name(path.name + ".hea"))
    header = wfdb.rdheader(str(path))
    if not getattr(header, "sig_name", None) or not header.sig_len:
        raise ValueError("the header lists no signals")
    _check_claims(path, header, rate)
    has_beats = path.with_name(path.name + ".atr").is_file()
    if annotated and not has_beats:
        raise DataError(f"has no annotation file {path.name}.atr")
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
    """Raise an error if the header declares more values than its files hold, files elsewhere, or an implausible rate."""
    for name, form in zip(header.file_name, header.fmt, strict=True):
        if Path(name).name != name:
            raise ValueError(f"its header names the file {short(name)}, which is in another folder")
        values = _size_of(path.with_name(name)) * (_PACKED if form in _FLAC else 1)
        if header.sig_len * header.file_name.count(name) > values:
            raise ValueError(f"its header declares {header.sig_len} values per lead, but {name} is too short for them")
    native = float(header.fs)
    if not SLOWEST <= native <= FASTEST:
        raise ValueError(f"its rate is {native:g} Hz, expected {SLOWEST:g} to {FASTEST:g}")
    if rate is not None and not 1 / FURTHEST <= rate / native <= FURTHEST:
        raise OptionError(f"has rate {native:g}, too far from {rate:g} to be resampled")
    check_room(2, (len(header.sig_name), math.ceil(header.sig_len * max(1.0, (rate or native) / native))))


def _size_of(path: Path) -> int:
    """Size of a regular file in bytes; reading a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    return path.stat().st_size


def alike(records: Sequence[Record], leads: Sequence[str] | None) -> tuple[list[Record], tuple[str, ...], list[Loss]]:
    """The records with the rate and unit of the first and with all leads, the leads, and (name, reason) of the others."""
    rate = records[0].rate
    same = [r for r in records if r.rate == rate]
    names = tuple(leads or (lead for lead in same[0].leads if all(lead in r.leads for r in same)))
    having = [r for r in same if names and set(names) <= set(r.leads)]
    if not having:
        every = sorted({lead for r in same for lead in r.leads})
        problem = f"no record has the leads {', '.join(leads)}" if leads else "the records share no lead"
        raise OptionError(f"{problem}: pass leads, some of {', '.join(every)}, or records that share one")
    unit = having[0].unit(names)
    advice = "pass rate to resample all records"
    odd = [(r.name, f"has rate {r.rate:g}, not {rate:g}: {advice}") for r in records if r.rate != rate]
    odd += [(r.name, f"has leads {', '.join(r.leads)}, not {', '.join(names)}") for r in same if r not in having]
    odd += [(r.name, f"is in {r.unit(names)}, not {unit}") for r in having if r.unit(names) != unit]
    return [r for r in having if r.unit(names) == unit], names, odd


def read_values(record: Record, leads: Sequence[str], scaling: Scaling | None = None) -> Values:
    """Read the leads at the rate of the record; a gap (NaN) remains, and resampling widens it."""
    signal = _wfdb().rdrecord(str(record.path)).p_signal
    raw: Floats = np.ascontiguousarray(signal[:, [record.leads.index(lead) for lead in leads]].T, np.float64)
    ratio = _ratio(record.native, record.rate)
    length = -(-raw.shape[1] * ratio.numerator // ratio.denominator)
    if length != record.length:
        raise ValueError(f"holds {length} of {record.length} samples")
    saturated, flat = find_stuck(raw, record.native)
    values = standardise(resample(raw, ratio)) if scaling == "record" else resample(raw, ratio)
    near = np.minimum((np.arange(length) / ratio.numerator * ratio.denominator).round(), raw.shape[1] - 1).astype(int)
    return Values(values, saturated[:, near], flat[:, near])


def resample(x: Floats, ratio: Fraction) -> Floats:
    """Resample (leads, time) to `ratio` times the rate with an anti-aliasing polyphase filter."""
    if ratio == 1:
        return x
    from scipy.signal import resample_poly

    level = np.nanmedian(_with_values(x), axis=-1, keepdims=True)  # subtracted because the filter pads with zeros
    out: Floats = resample_poly(x - level, ratio.numerator, ratio.denominator, axis=1) + level
    return out


def standardise(x: Floats) -> Floats:
    """Scale (..., time) to mean 0 and standard deviation 1, ignoring gaps; a flat line becomes 0."""
    values = _with_values(x)
    deviation = np.nanstd(values, axis=-1, keepdims=True)
    out: Floats = (x - np.nanmean(values, axis=-1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return out


def find_stuck(x: Floats, rate: float) -> tuple[Flags, Flags]:
    """Where each lead of x (leads, time) is saturated and where it is flat, both (leads, time)."""
    same = np.zeros(x.shape, bool)
    same[:, 1:] = x[:, 1:] == x[:, :-1]
    values = _with_values(x)
    low, high = np.nanmin(values, axis=1, keepdims=True), np.nanmax(values, axis=1, keepdims=True)
    ends = ((x == low) | (x == high)) & (high > low)
    stuck = np.stack([_runs(lead, max(3, round(STUCK * rate))) for lead in ends])
    flat = np.stack([_runs(lead, max(3, round(FLAT * rate))) for lead in same])
    return stuck, flat


def _with_values(x: Floats) -> Floats:
    """Replace leads (..., time) that hold only gaps by zeros, so that their statistics are defined."""
    return np.where(np.isfinite(x).any(-1, keepdims=True), x, 0.0)


def _runs(flags: Flags, least: int) -> Flags:
    """Keep runs of at least `least` consecutive true `flags` (time,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    out = np.zeros(len(flags), bool)
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        out[start:stop] = stop - start >= least
    return out


def _ratio(native: float, rate: float | None) -> Fraction:
    return Fraction(1) if rate is None or rate == native else Fraction(rate / native).limit_denominator(1000)


def reason(left_out: Sequence[Loss]) -> str:
    """The first loss as the end of an error sentence."""
    return f": {left_out[0][0]} {left_out[0][1]}" if left_out else ": they hold none"


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtra("wfdb", "ecg") from error
    return wfdb
