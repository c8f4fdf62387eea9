"""Read one WFDB record: its header, its beats, and its leads at the requested rate and scale. Gaps stay gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import Scaling, check_room
from rlab.data.source import Loss, Unreadable, first_loss, reading
from rlab.data.wfdb_files import TWELVE, Flags, Floats, Header, find_stuck, read_beats, read_header, read_leads
from rlab.errors import DataError, InputError, OptionError
from rlab.progress import PATIENCE, bar

AAMI = {"N": "NLRBej", "S": "AaJSn", "V": "VEr", "F": "F", "Q": "/fQ?"}  # ANSI/AAMI EC57 classes of beat symbols
CLASS_OF = {symbol: name for name, symbols in AAMI.items() for symbol in symbols}
FURTHEST = 100.0  # limit on the factor of resampling
VOLTS = {"V": 1e3, "mV": 1.0, "uV": 1e-3, "µV": 1e-3}  # in mV
LOWEST, HIGHEST = 0.03, 50.0  # mV from the lowest to the highest value of an ECG: a QRS of 0.1 to 5 mV, artefacts of 10
_ECG = {*TWELVE, "MLI", "MLII", "MLIII", "ECG", "ECG1", "ECG2"}
_USUAL = {lead.upper(): lead for lead in TWELVE}


@dataclass(frozen=True, eq=False)
class Record:
    """Header and beats of a record, in time steps of `rate`; the signal is read later."""

    name: str
    path: Path
    header: Header
    leads: tuple[str, ...]
    rate: float  # Hz after resampling
    length: int
    at: NDArray[np.int64]  # (beats,) sample number of each R
    classes: tuple[str, ...]  # (beats,) AAMI class of each beat
    files: tuple[str, ...]  # names of its files, in the folder of `path`

    def unit(self, leads: Sequence[str]) -> str:
        """The unit of these leads, or their units if they differ."""
        return ", ".join(dict.fromkeys(self.header.units[self.leads.index(lead)] for lead in leads))


@dataclass(frozen=True)
class Values:
    """Values of the leads (leads, time), and where they are saturated or flat."""

    values: Floats
    saturated: Flags
    flat: Flags
    fault: str = ""  # why no part of the record can be used


def read_headers(paths: Sequence[Path], rate: float | None, annotated: bool) -> tuple[list[Record], list[Loss]]:
    """The readable records, and (name, reason) of the others."""
    records: list[Record] = []
    left_out: list[Loss] = []
    with bar(len(paths), "reading headers", unit="records", patience=PATIENCE) as progress:
        for path in paths:
            try:
                with reading():
                    records.append(read_record(path, rate, annotated))
            except (Unreadable, InputError) as why:
                left_out.append((path.name, str(why)))
            progress((path,))
    if not records:
        raise DataError(f"none of {len(paths)} WFDB records can be read{first_loss(left_out)}")
    return records, left_out


def read_record(path: Path, rate: float | None = None, annotated: bool = False) -> Record:
    """Read the header, and the beats if there are any; `annotated` requires them."""
    header, has_beats = read_header(path), path.with_name(f"{path.name}.atr").is_file()
    native, length = header.rate, header.length
    if rate is not None and not 1 / FURTHEST <= rate / native <= FURTHEST:
        raise OptionError(f"has rate {native:g}, too far from {rate:g} to be resampled")
    check_room(2, (len(header.leads), math.ceil(length * max(1.0, (rate or native) / native))))
    if annotated and not has_beats:
        raise DataError(f"has no annotation file {path.name}.atr")
    places, symbols = read_beats(path) if has_beats else ((), "")
    beats = [(int(at), CLASS_OF[symbol]) for at, symbol in zip(places, symbols, strict=True) if symbol in CLASS_OF]
    ratio = ratio_of(native, rate)
    return Record(
        name=path.name,
        path=path,
        header=header,
        leads=tuple(map(usual_name, header.leads)),
        rate=native if rate is None else rate,
        length=-(-length * ratio.numerator // ratio.denominator),
        at=np.array([round(at * ratio) for at, _ in beats], np.int64),
        classes=tuple(name for _, name in beats),
        files=(f"{path.name}.hea", *((f"{path.name}.atr",) if has_beats else ()), *sorted(set(header.files))),
    )


def usual_name(lead: str) -> str:
    """The usual spelling of a standard lead ('AVR' -> 'aVR'); other names stay as they are."""
    return _USUAL.get(lead.upper(), lead)


def alike(records: Sequence[Record], leads: Sequence[str] | None) -> tuple[list[Record], tuple[str, ...], list[Loss]]:
    """The records with the rate and unit of the first and with all leads, the leads, and (name, reason) of the others."""
    rate, leads = records[0].rate, None if leads is None else tuple(map(usual_name, leads))
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
    raw = read_leads(record.path, record.header, [record.leads.index(lead) for lead in leads])
    ratio = ratio_of(record.header.rate, record.rate)
    length = -(-raw.shape[1] * ratio.numerator // ratio.denominator)
    if length != record.length:
        raise ValueError(f"holds {length} of {record.length} samples")
    saturated, flat = find_stuck(raw, record.header.rate)
    values = standardise(resample(raw, ratio)) if scaling == "record" else resample(raw, ratio)
    if ratio != 1:
        near = (np.arange(length) / ratio.numerator * ratio.denominator).round().clip(max=raw.shape[1] - 1).astype(int)
        saturated, flat = saturated[:, near], flat[:, near]
    return Values(values, saturated, flat, fault=_wrong_gain(raw, leads, record.unit(leads)))


def _wrong_gain(x: Floats, leads: Sequence[str], unit: str) -> str:
    """Why the heights of x (leads, time) cannot be those of an ECG, or '': the header's gain must be wrong."""
    if unit not in VOLTS or not all(lead in _ECG for lead in leads) or not np.isfinite(x).any():
        return ""
    heights = (np.fmax.reduce(x, axis=1) - np.fmin.reduce(x, axis=1)) * VOLTS[unit]
    worst = int(np.nanargmax(heights))
    if heights[worst] > HIGHEST:
        return f"lead {leads[worst]} is {heights[worst]:.3g} mV high: the gain in its header is wrong"
    if 0 < heights[worst] < LOWEST:
        return f"no lead is higher than {heights[worst]:.2g} mV: the gain in its header is wrong"
    return ""


def resample(x: Floats, ratio: Fraction) -> Floats:
    """Resample (leads, time) to `ratio` times the rate with an anti-aliasing polyphase filter."""
    if ratio == 1:
        return x
    from scipy.signal import resample_poly

    level = np.nanmedian(_with_values(x), axis=-1, keepdims=True)  # subtracted because the filter pads with zeros
    out: Floats = resample_poly(x - level, ratio.numerator, ratio.denominator, axis=1) + level
    return out


def _with_values(x: Floats) -> Floats:
    """Replace leads (..., time) that hold only gaps by zeros, so that their statistics are defined."""
    return np.where(np.isfinite(x).any(-1, keepdims=True), x, 0.0)


def standardise(x: Floats) -> Floats:
    """Scale (..., time) to mean 0 and standard deviation 1, ignoring gaps; a flat line becomes 0."""
    values = _with_values(x)
    deviation = np.nanstd(values, axis=-1, keepdims=True)
    out: Floats = (x - np.nanmean(values, axis=-1, keepdims=True)) / np.where(deviation > 0, deviation, 1.0)
    return out


def ratio_of(native: float, rate: float | None) -> Fraction:
    return Fraction(1) if rate is None or rate == native else Fraction(rate / native).limit_denominator(1000)
