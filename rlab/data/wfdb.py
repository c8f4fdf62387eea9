"""Read one WFDB record: its header, its beats, and its leads at the requested rate and scale. Gaps stay gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.fields import Scaling, check_room
from rlab.data.source import Loss, Unreadable, first_loss, readable
from rlab.errors import DataError, MissingExtra, OptionError, optional
from rlab.storage.outside import short

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
TWELVE = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")  # the standard leads
AAMI = {"N": "NLRBej", "S": "AaJSn", "V": "VEr", "F": "F", "Q": "/fQ?"}  # ANSI/AAMI EC57 classes of beat symbols
CLASS_OF = {symbol: name for name, symbols in AAMI.items() for symbol in symbols}
FLAT, STUCK = 0.25, 0.05  # seconds at one value that count as flat, and at an extreme of the record as saturated
SLOWEST, FASTEST = 0.01, 1e6  # limits on the rate in Hz
FURTHEST = 100.0  # limit on the factor of resampling
VOLTS = {"V": 1e3, "mV": 1.0, "uV": 1e-3, "µV": 1e-3}  # in mV
LOWEST, HIGHEST = 0.03, 50.0  # mV from the lowest to the highest value of an ECG: a QRS of 0.1 to 5 mV, artefacts of 10
NOISE = {"bw": "recorded_baseline_wander", "em": "recorded_electrode_motion", "ma": "recorded_muscle_noise"}
GAP = -32768  # the 16-bit value of a gap
_ECG = {*TWELVE, "MLI", "MLII", "MLIII", "ECG", "ECG1", "ECG2"}
_USUAL = {lead.upper(): lead for lead in TWELVE}
_FLAC, _PACKED = ("508", "516", "524"), 1000  # compressed formats, and how many values a byte may hold in them
_LARGEST = 2**20  # bytes of a header


@dataclass(frozen=True, eq=False)
class Record:
    """Header and beats of a record, in time steps of `rate`; the signal is read later."""

    path: Path  # without suffix
    leads: tuple[str, ...]
    units: tuple[str, ...]
    native: float  # Hz, as stored
    rate: float  # Hz after resampling
    stored: int  # values of each lead
    comments: tuple[str, ...]
    data: tuple[str, ...]  # of each lead: the name of its file
    plain: bool  # 16-bit values in one file, one of each lead after the other
    offset: int  # bytes before the first value
    gain: Floats
    zero: Floats
    at: NDArray[np.int64]  # (beats,) sample number of each R
    classes: tuple[str, ...]  # (beats,) AAMI class of each beat

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def ratio(self) -> Fraction:
        return ratio_of(self.native, self.rate)

    @property
    def length(self) -> int:
        """Values of each lead after resampling."""
        return -(-self.stored * self.ratio.numerator // self.ratio.denominator)

    @property
    def files(self) -> list[Path]:
        beats = [f"{self.name}.atr"] if len(self.at) else []
        return [self.path.with_name(name) for name in (f"{self.name}.hea", *beats, *sorted(set(self.data)))]

    def unit(self, leads: Sequence[str]) -> str:
        """The unit of these leads, or their units if they differ."""
        return ", ".join(dict.fromkeys(self.units[self.leads.index(lead)] for lead in leads))


@dataclass(frozen=True)
class Values:
    """Values of the leads (leads, time), and where they are saturated or flat."""

    values: Floats
    saturated: Flags
    flat: Flags


def read_record(path: Path, rate: float | None = None, annotated: bool = False) -> Record:
    """Read the header, and the beats if there are any; `annotated` requires them. wfdb.rdheader takes twenty times as long."""
    load_wfdb()
    from wfdb.io.header import parse_header_content, rx_record, rx_signal

    file = path.with_name(path.name + ".hea")
    if _size_of(file) > _LARGEST:
        raise ValueError(f"its header has more than {_LARGEST:,} bytes")
    lines, comments = parse_header_content(file.read_text("ascii", "ignore"))
    head, signals = rx_record.match(lines[0]) if lines else None, [rx_signal.match(line) for line in lines[1:]]
    if head is None or head["n_seg"] or not signals or not int(head["sig_len"] or 0):
        raise ValueError("the header lists no signals")
    if not all(signal and signal["sig_name"] for signal in signals):
        raise ValueError("the header lists no signals")
    native, names = float(head["fs"] or 250), tuple(signal["file_name"] for signal in signals)
    alone = all(signal["samps_per_frame"] in ("", "1") and not int(signal["skew"] or 0) for signal in signals)
    record = Record(
        path=path,
        leads=tuple(usual_name(signal["sig_name"]) for signal in signals),
        units=tuple(signal["units"] or "mV" for signal in signals),
        native=native,
        rate=native if rate is None else rate,
        stored=int(head["sig_len"]),
        comments=tuple(comment.strip(" \t#") for comment in comments),
        data=names,
        plain=alone and len(set(names)) == 1 and all(signal["fmt"] == "16" for signal in signals),
        offset=int(signals[0]["byte_offset"] or 0),
        gain=np.array([float(signal["adc_gain"] or 0) or 200.0 for signal in signals]),
        zero=np.array([float(signal["baseline"] or signal["adc_zero"] or 0) for signal in signals]),
        **_beats(path, ratio_of(native, rate), annotated),
    )
    _check_claims(record, [signal["fmt"] for signal in signals])
    return record


def _beats(path: Path, ratio: Fraction, annotated: bool) -> dict[str, Any]:
    """The annotated beats of a record."""
    at, classes = list[int](), list[str]()
    if path.with_name(f"{path.name}.atr").is_file():
        notes = load_wfdb().rdann(str(path), "atr")
        for place, symbol in zip(notes.sample.tolist(), notes.symbol, strict=True):
            if name := CLASS_OF.get(symbol[:1]):
                at.append(round(place * ratio))
                classes.append(name)
    elif annotated:
        raise Unreadable(f"has no annotation file {path.name}.atr")
    return {"at": np.array(at, np.int64), "classes": tuple(classes)}


def _check_claims(record: Record, formats: Sequence[str]) -> None:
    """Raise an error if the header declares more values than its files hold, files elsewhere, or an implausible rate."""
    for name, form in zip(record.data, formats, strict=True):
        if Path(name).name != name:
            raise ValueError(f"its header names the file {short(name)}, which is in another folder")
        values = _size_of(record.path.with_name(name)) * (_PACKED if form in _FLAC else 1)
        if record.stored * record.data.count(name) > values:
            raise ValueError(f"its header declares {record.stored} values per lead, but {name} is too short for them")
    if not SLOWEST <= record.native <= FASTEST:
        raise ValueError(f"its rate is {record.native:g} Hz, expected {SLOWEST:g} to {FASTEST:g}")
    if not 1 / FURTHEST <= record.rate / record.native <= FURTHEST:
        raise Unreadable(f"has rate {record.native:g}, too far from {record.rate:g} to be resampled")
    check_room(2, (len(record.leads), math.ceil(record.stored * max(1.0, record.rate / record.native))))


def _size_of(path: Path) -> int:
    """Size of a regular file in bytes; reading a pipe or a device might never end."""
    if not path.is_file():
        raise ValueError(f"there is no file {path.name}")
    return path.stat().st_size


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
    raw, ratio = _read_leads(record, [record.leads.index(lead) for lead in leads]), record.ratio
    if raw.shape[1] != record.stored:
        raise ValueError(f"it holds {raw.shape[1]} of {record.stored} values per lead")
    _refuse_wrong_gain(raw, leads, record.unit(leads))
    saturated, flat = find_stuck(raw, record.native)
    values = resample(raw, ratio)
    if ratio != 1:
        steps = np.arange(values.shape[1]) / ratio.numerator * ratio.denominator
        near = steps.round().clip(max=raw.shape[1] - 1).astype(int)
        saturated, flat = saturated[:, near], flat[:, near]
    return Values(standardise(values) if scaling == "record" else values, saturated, flat)


def _read_leads(record: Record, rows: Sequence[int]) -> Floats:
    """Values (leads, time) of the leads at these positions, in their units; gaps are NaN."""
    if not record.plain:
        every: Floats = np.asarray(load_wfdb().rdrecord(str(record.path)).p_signal, np.float64)
        return np.ascontiguousarray(every.T[rows])
    count, file = len(record.leads), record.path.with_name(record.data[0])
    raw = np.fromfile(file, "<i2", record.stored * count, offset=record.offset)
    digital: Floats = np.ascontiguousarray(raw[: len(raw) // count * count].reshape(-1, count)[:, rows].T, np.float64)
    return np.where(digital == GAP, np.nan, (digital - record.zero[rows, None]) / record.gain[rows, None])


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
    long, inside = stops - starts >= least, np.zeros(flags.shape, bool)
    for lead, start, stop in zip(leads[long], starts[long], stops[long], strict=True):
        inside[lead, start:stop] = True
    return inside


def _refuse_wrong_gain(x: Floats, leads: Sequence[str], unit: str) -> None:
    """Refuse leads x (leads, time) whose heights cannot be those of an ECG: the header's gain must be wrong."""
    if unit not in VOLTS or not all(lead in _ECG for lead in leads) or not np.isfinite(x).any():
        return
    heights = (np.fmax.reduce(x, axis=1) - np.fmin.reduce(x, axis=1)) * VOLTS[unit]
    worst = int(np.nanargmax(heights))
    if heights[worst] > HIGHEST:
        raise Unreadable(f"lead {leads[worst]} is {heights[worst]:.3g} mV high: the gain in its header is wrong")
    if 0 < heights[worst] < LOWEST:
        raise Unreadable(f"no lead is higher than {heights[worst]:.2g} mV: the gain in its header is wrong")


def ratio_of(native: float, rate: float | None) -> Fraction:
    return Fraction(1) if rate is None or rate == native else Fraction(rate / native).limit_denominator(1000)


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


def load_wfdb() -> Any:
    return optional("wfdb", MissingExtra("wfdb", "ecg"))


def read_noise(folder: str, rate: float | None) -> dict[str, Tensor]:
    """Noise (channels, time) at `rate` by the name of its filter, from the records bw*, em* and ma* in the folder, such as those of
    the MIT-BIH Noise Stress Test Database (https://doi.org/10.13026/C2HS3T)."""
    if rate is None:
        raise OptionError("recorded noise needs the rate of the data, which is unknown: pass it (-D rate=360)")
    headers = {name: sorted(Path(folder).glob(f"{begin}*.hea")) for begin, name in NOISE.items()}
    records = {name: every[0].with_suffix("") for name, every in headers.items() if every}
    if not records:
        expected = ", ".join(f"{begin}*.hea" for begin in NOISE)
        raise DataError(f"the folder {folder!r} holds no recorded noise: expected WFDB records {expected}")

    def read(path: Path) -> Tensor:
        record = read_record(path, rate)
        values = read_values(record, record.leads).values
        if not np.isfinite(values).all():
            raise Unreadable("holds gaps (NaN): use a record without them")
        return torch.from_numpy(values).float()

    found, losses = readable(read, records)
    if losses:
        raise DataError(f"the recorded noise cannot be used{first_loss(losses)}")
    return found
