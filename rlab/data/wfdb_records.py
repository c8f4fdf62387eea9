"""WFDB records (PhysioNet) cut into beats or windows. Values stay in the record's physical unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.labels import Classes, encode, look_up, read_table
from rlab.data.take import Take, check_room
from rlab.errors import InputError, MissingExtra

AAMI = {"N": "NLRBej", "S": "AaJSn", "V": "VEr", "F": "F", "Q": "/fQ?"}  # ANSI/AAMI EC57 classes of beat symbols
CLASS_OF = {symbol: name for name, symbols in AAMI.items() for symbol in symbols}
QRS = 0.05  # seconds either side of R: annotations mark R alone, so the width is a convention
BEAT, WINDOW = 0.72, 10.0  # seconds, where none are asked for
# Records of disjoint patients, de Chazal et al. 2004 (https://doi.org/10.1109/TBME.2004.827359)
_DS1 = "101 106 108 109 112 114 115 116 118 119 122 124 201 203 205 207 208 209 215 220 223 230"
_DS2 = "100 103 105 111 113 117 121 123 200 202 210 212 213 214 219 221 222 228 231 232 233 234"
SPLITS = {"train": frozenset(_DS1.split()), "test": frozenset(_DS2.split())}


@dataclass(frozen=True, eq=False)
class Record:
    """A record's header and beats; the signal itself is read when it is cut."""

    name: str
    path: Path
    leads: tuple[str, ...]
    units: tuple[str, ...]
    rate: float
    length: int
    at: NDArray[np.int64]  # (beats,) sample of each R
    classes: tuple[str, ...]  # (beats,) AAMI class of each


@dataclass(frozen=True)
class Cut:
    """One sample to be: `length` values of a record from `start`, and the label if the beats decide it."""

    record: Record
    start: int
    length: int
    id: str
    label: str


def wfdb_records(
    path: str | Path,
    *,
    beats: bool = True,
    window: float | None = None,
    leads: Sequence[str] | None = None,
    records: Sequence[str] | None = None,
    split: str | None = None,
    labels: str | None = None,
    label_column: str | None = None,
    classes: Classes = None,
    take: Take | None = None,
) -> Batch:
    """Signals (b, leads, t) from one record or a folder of them, ids 'record:sample', masks at R +- 50 ms.

    beats: `window` seconds (0.72) centred on each annotated R, labelled by AAMI class N, S, V, F or Q; else windows of
    `window` seconds (10) end to end, labelled by the commonest class other than N among their beats, N where there is
    none. A table of `labels` by record replaces both. `leads` defaults to those all records share; `split` train or
    test are the usual patient-disjoint halves of the MIT-BIH arrhythmia database.
    """
    given = None if labels is None else read_table(labels, label_column)
    found, left_out = _headers(_paths(Path(path), records, split), annotated=given is None or beats)
    chosen, names, odd = _alike(found, leads)
    seconds = window if window is not None else BEAT if beats else WINDOW
    cuts, border = _cuts(chosen, beats, seconds, given is None)
    left_out += odd + border
    if not cuts:
        raise InputError(f"no {'beats' if beats else 'windows'} to use in {str(path)!r}{_reason(left_out)}")
    cuts = [cuts[i] for i in (take or Take()).order(len(cuts))]
    x, kept, broken = _read(cuts, names)
    texts = (
        [cuts[i].label for i in kept]
        if given is None
        else look_up(given, [cuts[i].record.name for i in kept], str(labels))
    )
    order = tuple(AAMI) if given is None and classes is None else classes
    y, class_order = encode(texts, order, known=() if given is None else tuple(given.values()))
    return Batch(
        x=x[kept],
        y=y,
        ids=tuple(cuts[i].id for i in kept),
        bounds=UNBOUNDED,
        classes=class_order,
        masks=torch.stack([_mask(cuts[i]) for i in kept]) if all(len(one.at) for one in chosen) else None,
        unit=_unit(chosen[0], names),
        rate=chosen[0].rate,
        left_out=tuple(left_out + broken),
    )


def _paths(path: Path, records: Sequence[str] | None, split: str | None) -> list[Path]:
    """Records without their ending: the folder's, or the one that is named."""
    if not path.is_dir():
        if records is not None or split is not None:
            raise InputError(f"{str(path)!r} is one record: records and split are for a folder of them")
        one = path.with_suffix("") if path.suffix in (".hea", ".dat", ".atr") else path
        if not one.with_name(one.name + ".hea").is_file():
            raise InputError(f"there is no record {str(one)!r}: expected the header {one.name + '.hea'!r}")
        return [one]
    found = sorted(header.with_suffix("") for header in path.glob("*.hea"))
    if not found:
        raise InputError(f"the folder {str(path)!r} holds no WFDB records: expected .hea headers")
    if split is not None and split not in SPLITS:
        raise InputError(f"expected split train or test, got {split!r}")
    wanted = records if records is not None else SPLITS[split] if split else None
    chosen = [one for one in found if wanted is None or one.name in wanted]
    missing = [name for name in records or () if name not in {one.name for one in found}]
    if missing or not chosen:
        raise InputError(
            f"the folder {str(path)!r} has no record {missing[0] if missing else f'of the {split} split'!r}: "
            f"it holds {', '.join(one.name for one in found[:5])}{', ...' if len(found) > 5 else ''}"
        )
    return chosen


def _headers(paths: Sequence[Path], annotated: bool) -> tuple[list[Record], list[tuple[str, str]]]:
    """The records that can be read, and (name, why) of those that cannot."""
    found: list[Record] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        try:
            found.append(_header(path, annotated))
        except MissingExtra:
            raise
        # What wfdb raises on a broken file can be nearly anything.
        except Exception as error:
            left_out.append((path.name, f"cannot be read: {error or type(error).__name__}"))
    if not found:
        raise InputError(f"none of {len(paths)} WFDB records can be read{_reason(left_out)}")
    return found, left_out


def _header(path: Path, annotated: bool) -> Record:
    wfdb = _wfdb()
    header = wfdb.rdheader(str(path))
    if not header.sig_name or not header.sig_len:
        raise ValueError("the header names no signals")
    has_beats = annotated or path.with_name(path.name + ".atr").is_file()
    notes = wfdb.rdann(str(path), "atr") if has_beats else None
    pairs = [] if notes is None else list(zip(notes.sample, notes.symbol, strict=True))
    beats = [(int(at), CLASS_OF[symbol]) for at, symbol in pairs if symbol in CLASS_OF]
    return Record(
        name=path.name,
        path=path,
        leads=tuple(header.sig_name),
        units=tuple(header.units),
        rate=float(header.fs),
        length=int(header.sig_len),
        at=np.array([at for at, _ in beats], np.int64),
        classes=tuple(name for _, name in beats),
    )


def _alike(
    found: list[Record], leads: Sequence[str] | None
) -> tuple[list[Record], tuple[str, ...], list[tuple[str, str]]]:
    """Records of the first one's rate that have the leads, the leads, and (name, why) of the others."""
    same = [one for one in found if one.rate == found[0].rate]
    odd = [(one.name, f"has rate {one.rate:g}, not {found[0].rate:g}") for one in found if one.rate != found[0].rate]
    names = tuple(leads or (lead for lead in same[0].leads if all(lead in one.leads for one in same)))
    having = [one for one in same if names and set(names) <= set(one.leads)]
    odd += [
        (one.name, f"has leads {', '.join(one.leads)}, not {', '.join(names)}") for one in same if one not in having
    ]
    if not having:
        every = sorted({lead for one in same for lead in one.leads})
        asked = f"no record has the leads {', '.join(leads)}" if leads else "the records share no lead"
        raise InputError(f"{asked}: pass leads, some of {', '.join(every)}, or records that share one")
    chosen = [one for one in having if _unit(one, names) == _unit(having[0], names)]
    odd += [
        (one.name, f"is in {_unit(one, names)}, not {_unit(having[0], names)}") for one in having if one not in chosen
    ]
    return chosen, names, odd


def _unit(record: Record, leads: Sequence[str]) -> str:
    """The unit of the leads, or their units where they differ."""
    return ", ".join(dict.fromkeys(record.units[record.leads.index(lead)] for lead in leads))


def _cuts(
    records: Sequence[Record], beats: bool, window: float, labelled: bool
) -> tuple[list[Cut], list[tuple[str, str]]]:
    """Where each sample lies, and (id, why) of those that lie across a border or have no beat to be labelled by."""
    cuts: list[Cut] = []
    left_out: list[tuple[str, str]] = []
    length = 2 * round(window * records[0].rate / 2)
    if length < 2:
        raise InputError(f"expected a window of at least two values, got {window:g} s at {records[0].rate:g} Hz")
    for record in records:
        every = _beat_cuts(record, length) if beats else _window_cuts(record, length)
        for cut in every:
            if cut.start < 0 or cut.start + length > record.length:
                left_out.append((cut.id, "at the record's border"))
            elif labelled and not cut.label:
                left_out.append((cut.id, "holds no annotated beat"))
            else:
                cuts.append(cut)
    return cuts, left_out


def _beat_cuts(record: Record, length: int) -> list[Cut]:
    pairs = zip(record.at.tolist(), record.classes, strict=True)
    return [Cut(record, at - length // 2, length, f"{record.name}:{at:06d}", name) for at, name in pairs]


def _window_cuts(record: Record, length: int) -> list[Cut]:
    starts = range(0, record.length - length + 1, length)
    return [Cut(record, at, length, f"{record.name}:{at:06d}", _commonest(record, at, length)) for at in starts]


def _commonest(record: Record, start: int, length: int) -> str:
    """The commonest class other than N among a window's beats; N where there is no other, '' where there is no beat."""
    inside = np.flatnonzero((record.at >= start) & (record.at < start + length))
    counts = Counter(record.classes[i] for i in inside)
    others = {name: count for name, count in counts.items() if name != "N"}
    return max(sorted(others), key=lambda name: others[name]) if others else ("N" if counts else "")


def _read(cuts: Sequence[Cut], leads: tuple[str, ...]) -> tuple[Tensor, list[int], list[tuple[str, str]]]:
    """All cuts (b, leads, t), which of them hold, and (id, why) of the rest. One record is in memory at a time."""
    check_room(len(cuts), (len(leads), cuts[0].length))
    x = torch.zeros(len(cuts), len(leads), cuts[0].length)
    left_out: list[tuple[str, str]] = []
    kept: list[int] = []
    for record in dict.fromkeys(cut.record.name for cut in cuts):
        rows = [i for i, cut in enumerate(cuts) if cut.record.name == record]
        try:
            values = _values(cuts[rows[0]].record, leads)
        except Exception as error:
            left_out.append((record, f"cannot be read: {error or type(error).__name__}"))
            continue
        for row in rows:
            x[row] = values[:, cuts[row].start : cuts[row].start + cuts[row].length]
        gaps = [row for row in rows if not bool(torch.isfinite(x[row]).all())]
        left_out += [(cuts[row].id, "holds a gap (NaN)") for row in gaps]
        kept += [row for row in rows if row not in set(gaps)]
    if not kept:
        raise InputError(f"none of {len(cuts)} samples can be used{_reason(left_out)}")
    return x, sorted(kept), left_out


def _values(record: Record, leads: tuple[str, ...]) -> Tensor:
    """(leads, length) in physical units."""
    values = _wfdb().rdrecord(str(record.path)).p_signal[:, [record.leads.index(lead) for lead in leads]]
    if len(values) != record.length:
        raise ValueError(f"holds {len(values)} of {record.length} samples")
    return torch.from_numpy(np.ascontiguousarray(values.T, np.float32))


def _mask(cut: Cut) -> Tensor:
    """(t,) true within 50 ms of an annotated R."""
    reach = round(QRS * cut.record.rate)
    mask = torch.zeros(cut.length, dtype=torch.bool)
    near = np.searchsorted(cut.record.at, (cut.start - reach, cut.start + cut.length + reach))
    for at in (cut.record.at[slice(*near)] - cut.start).tolist():
        mask[max(0, at - reach) : max(0, at + reach + 1)] = True
    return mask


def _reason(left_out: Sequence[tuple[str, str]]) -> str:
    return f": {left_out[0][0]} {left_out[0][1]}" if left_out else ": they hold none"


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtra("wfdb", "ecg") from error
    return wfdb
