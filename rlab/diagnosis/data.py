"""What the samples show by themselves; the model is not asked."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

from torch import Tensor, uint8

from rlab.data.batch import Batch
from rlab.diagnosis.report import Finding, error, note, warning
from rlab.victims.base import Victim

_TWICE = 1.001 / 255  # of the range: where values divided by 255 once too often end
_NARROW = 0.05  # of the range
_SLACK = 1e-3  # as the victim allows


def data_findings(victim: Victim, batch: Batch) -> list[Finding]:
    return [*_values(batch), *_agreement(victim, batch), *_one_class(batch), *_duplicates(batch), *_flat(batch)]


def _values(batch: Batch) -> list[Finding]:
    low, high = batch.bounds
    least, most = (float(end) for end in batch.x.aminmax())
    if not math.isfinite(high - low) or least == most:
        return []
    seen = f"the values run from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}]"
    if most <= low + (high - low) * _TWICE:
        change = "divide by 255 once only" if high - low <= 1 else f"pass bounds=({low:g}, {(high - low) / 255:g})"
        return [error("bounds", f"{seen}: they look divided by 255 once too often", f"{change} when loading the data")]
    if most - least < _NARROW * (high - low):
        change = "pass the bounds the data really have: severities are a share of them"
        return [warning("bounds", f"{seen}: they fill {(most - least) / (high - low):.1%} of them", change)]
    return []


def _agreement(victim: Victim, batch: Batch) -> list[Finding]:
    """Distorted inputs may reach the batch's bounds, so the victim must accept all of them."""
    (low, high), (least, most) = victim.bounds, batch.bounds
    slack = _SLACK * min(1.0, high - low)
    if (low, high) == (least, most) or not math.isfinite(high - low):
        return []
    seen = f"the data's bounds are [{least:g}, {most:g}] but the model's are [{low:g}, {high:g}]"
    change = f"pass bounds=({least:g}, {most:g}) to {type(victim).__name__}, or load the data with the model's bounds"
    if least < low - slack or most > high + slack:
        return [error("bounds", f"{seen}: distorted inputs would be refused", change)]
    return [warning("bounds", f"{seen}: distortions are cut to the narrower range", change)]


def _one_class(batch: Batch) -> list[Finding]:
    if len(batch) < 2 or not (batch.y == batch.y[0]).all():
        return []
    what = f"all {len(batch)} samples carry the same label"
    return [warning("one-class", what, "take samples of several classes, e.g. shuffle before taking the first ones")]


def _duplicates(batch: Batch) -> list[Finding]:
    counts = Counter(hashlib.blake2b(x.numpy().tobytes()).digest() for x in batch.x.cpu().contiguous().view(uint8))
    extra = len(batch) - len(counts)
    what = f"{extra} of {len(batch)} samples are exact copies of others"
    change = "leave the copies out: they count twice in every number"
    return [warning("duplicates", what, change)] if extra else []


def _flat(batch: Batch) -> list[Finding]:
    """Samples, or single channels of them, that hold one value throughout."""
    channels = _constant(batch.x.flatten(2))
    whole = _constant(batch.x.flatten(1))
    found = []
    if whole.any():
        named = _names(batch, whole)
        what = f"{int(whole.sum())} of {len(batch)} samples hold one value throughout: {named}"
        found.append(warning("flat", what, "leave them out: there is nothing in them to classify or to distort"))
    partly = channels.any(1) & ~whole
    if partly.any():
        named = _names(batch, partly)
        what = f"{int(partly.sum())} of {len(batch)} samples have a channel that is flat throughout: {named}"
        found.append(note("flat", what, "check for a lead that was off or a channel that was not filled"))
    return found


def _constant(flat: Tensor) -> Tensor:
    """(..., n) -> (...) bool."""
    return flat.amin(-1) == flat.amax(-1)


def _names(batch: Batch, rows: Tensor) -> str:
    """The first few ids of the samples where `rows` (b,) is true."""
    ids = [batch.ids[row] for row in rows.nonzero().flatten().tolist()]
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
