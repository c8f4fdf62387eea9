"""Records cut into samples: beats around R or windows end to end, and which of them can be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.ecg_masks import QRS, mark_masks
from rlab.data.take import check_room
from rlab.data.wfdb_read import Loss, Record, Scaling, Values, read_values, reason, standardise
from rlab.errors import InputError

BEYOND = 0.2  # seconds: an R so near a sample still reaches into it
DEVIATIONS = "SD"  # the unit of scaled values


@dataclass(frozen=True)
class Cut:
    """One sample to be: `length` values of a record from `start`, and the label if the beats decide it."""

    record: Record
    start: int
    length: int
    id: str
    label: str

    @property
    def marks(self) -> tuple[int, ...]:
        """Samples of the R peaks inside, and of those just outside."""
        reach = round(BEYOND * self.record.rate)
        near = np.searchsorted(self.record.at, (self.start - reach, self.start + self.length + reach))
        return tuple((self.record.at[slice(*near)] - self.start).tolist())


def cut_records(
    records: Sequence[Record], beats: bool, window: float, labelled: bool = False
) -> tuple[list[Cut], list[Loss]]:
    """Where each sample lies, and (id, why) of those that lie across a border or have no beat to be labelled by."""
    cuts: list[Cut] = []
    left_out: list[Loss] = []
    length = 2 * round(window * records[0].rate / 2)
    if length < 2:
        raise InputError(f"expected a window of at least two values, got {window:g} s at {records[0].rate:g} Hz")
    for record in records:
        every = _beat_cuts(record, length) if beats else _window_cuts(record, length)
        if not beats and not every:
            left_out.append((record.name, f"is shorter than a window of {window:g} s"))
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


def read_cuts(
    cuts: Sequence[Cut], leads: tuple[str, ...], scaling: Scaling | None = None
) -> tuple[Tensor, list[int], list[Loss]]:
    """All cuts (b, leads, t), which of them hold, and (id, why) of the rest. One record is in memory at a time."""
    check_room(len(cuts), (len(leads), cuts[0].length))
    x = torch.zeros(len(cuts), len(leads), cuts[0].length)
    left_out: list[Loss] = []
    kept: list[int] = []
    rows: dict[str, list[int]] = {}
    for row, cut in enumerate(cuts):
        rows.setdefault(str(cut.record.path), []).append(row)
    for members in rows.values():
        record = cuts[members[0]].record
        try:
            values = read_values(record, leads, scaling)
        except Exception as error:  # what wfdb raises on a broken file can be nearly anything
            left_out.append((record.name, f"cannot be read: {error or type(error).__name__}"))
            continue
        for row in members:
            why = _fault(values, cuts[row], leads)
            if why:
                left_out.append((cuts[row].id, why))
            else:
                one = values.values[:, cuts[row].start : cuts[row].start + cuts[row].length]
                x[row] = torch.from_numpy(standardise(one) if scaling == "window" else one)
                kept.append(row)
    if not kept:
        raise InputError(f"none of {len(cuts)} samples can be used{reason(left_out)}")
    return x, sorted(kept), left_out


def _fault(found: Values, cut: Cut, leads: tuple[str, ...]) -> str:
    """Why a cut cannot be used; '' where it can."""
    place = slice(cut.start, cut.start + cut.length)
    values = found.values[:, place]
    if not np.isfinite(values).all():
        return "holds a gap (NaN)"
    for what, flags in (
        ("is saturated", found.saturated[:, place].any(1)),
        ("is a flat line", found.flat[:, place].any(1) | (np.ptp(values, axis=1) == 0)),
    ):
        if flags.any():
            return f"lead {leads[int(flags.argmax())]} {what}"
    return ""


def to_batch(
    cuts: Sequence[Cut],
    x: Tensor,
    y: Tensor,
    classes: Sequence[str],
    leads: tuple[str, ...],
    scaling: Scaling | None,
    left_out: Sequence[Loss],
) -> Batch:
    """The samples as a batch, with R r_peaks and QRS masks where every record has annotated beats."""
    rate = cuts[0].record.rate
    r_peaks = tuple(cut.r_peaks for cut in cuts) if all(len(cut.record.at) for cut in cuts) else None
    return Batch(
        x=x,
        y=y,
        ids=tuple(cut.id for cut in cuts),
        bounds=UNBOUNDED,
        classes=tuple(classes),
        masks=None if r_peaks is None else mark_masks(r_peaks, x.shape[-1], round(QRS * rate)),
        unit=DEVIATIONS if scaling else cuts[0].record.unit(leads),
        rate=rate,
        left_out=tuple(left_out),
        r_peaks=r_peaks,
        leads=leads,
    )
