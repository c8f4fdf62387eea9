"""Checks of the data alone and of its bounds against the model's, which need no queries."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from torch import Tensor, uint8

from rlab.data.batch import Batch
from rlab.data.wfdb import HIGHEST, LOWEST
from rlab.diagnosis.report import Finding, error, note, options, passed, warning
from rlab.filters.palettes import VOLTS, is_ecg
from rlab.victims.base import Victim

_TWICE = 1.001 / 255  # share of the range that values divided by 255 once too often fill
_NARROW = 0.05  # share of the range
_SLACK = 1e-3  # as in Victim


def data_checks(batch: Batch) -> list[Finding]:
    """The outcome of each check of the data."""
    found = [_values(batch), *_unit(batch), _duplicates(batch), *_flat(batch)]
    return [*found, _labels(batch)] if batch.target == "classes" else found


def agreement(victim: Victim, batch: Batch) -> Iterator[Finding]:
    """Distorted inputs can take any value in the batch's bounds, so the victim must accept all of them."""
    (low, high), (least, most) = victim.bounds, batch.bounds
    slack = _SLACK * min(1.0, high - low)
    if (low, high) == (least, most) or not math.isfinite(high - low):
        return
    seen = f"the data's bounds are [{least:g}, {most:g}] but the model's are [{low:g}, {high:g}]"
    change = f"pass bounds=({least:g}, {most:g}) to {type(victim).__name__}, or load the data with the model's bounds"
    flag = options(bounds=(least, most)) if math.isfinite(most - least) else ""
    if least < low - slack or most > high + slack:
        yield error("bounds", f"{seen}: distorted inputs would be refused", change, flag)
    else:
        yield warning("bounds", f"{seen}: distortions are limited to the narrower range", change, flag)


def _values(batch: Batch) -> Finding:
    low, high = batch.bounds
    least, most = (float(end) for end in batch.x.aminmax())
    seen = f"the values range from {least:.4g} to {most:.4g} in bounds [{low:g}, {high:g}]"
    if not math.isfinite(high - low) or least == most:
        return passed("bounds", seen)
    if most <= low + (high - low) * _TWICE:
        twice, right = high - low <= 1, (high - low) / 255
        change = "divide by 255 only once" if twice else f"pass bounds=({low:g}, {right:g})"
        what, flag = f"{seen}: they seem to be divided by 255 twice", f"-D bounds=[{low:g},{right:g}]"
        return error("bounds", what, f"{change} when you load the data", "" if twice else flag)
    if most - least < _NARROW * (high - low):
        change = "pass the true bounds of the data, because severities are relative to them"
        return warning("bounds", f"{seen}: they fill only {(most - least) / (high - low):.1%} of them", change)
    return passed("bounds", seen)


def _unit(batch: Batch) -> Iterator[Finding]:
    """Heights that no ECG has in this unit; records with such heights are left out when they are read."""
    if not is_ecg(batch.rank, batch.rate, batch.unit):
        return
    tall = float((batch.x.amax(-1) - batch.x.amin(-1)).amax(1).median())  # of the tallest lead
    if LOWEST <= 1000 * VOLTS[batch.unit] * tall <= HIGHEST:
        return
    what = f"the tallest lead spans {tall:.4g} {batch.unit} (median of the samples), but an ECG {LOWEST:g} to {HIGHEST:g} mV"
    other = next((unit for unit in ("uV", "mV", "V") if LOWEST <= 1000 * VOLTS[unit] * tall <= HIGHEST), "")
    change = f"pass the unit of the values{f', such as {other}' * bool(other)}, because severities are in mV"
    yield warning("unit", what, change, f"-D unit={other}" if other else "")


def _labels(batch: Batch) -> Finding:
    different, take = len(batch.y.unique(dim=0)), batch.take
    if len(batch) < 2 or different > 1:
        what = "sets of labels" if batch.y.dim() > 1 else "labels"
        return passed("one-class", f"{different} different {what} in {len(batch)} samples")
    what, change, flag = f"all {len(batch)} loaded samples have the same label", "use samples of several classes: ", ""
    if take.limit is None or len(batch) < take.limit or (take.order == "spread" and not take.shuffle):
        change = "load samples of several classes: more data or another split"
    elif take.shuffle:
        change += "raise the limit, or leave out shuffle"
    else:
        change, flag = f"{change}spread the limit over them", "-D order=spread"
    return warning("one-class", what, change, flag)


def _duplicates(batch: Batch) -> Finding:
    hashes = {hashlib.blake2b(x.numpy().tobytes()).digest() for x in batch.x.cpu().contiguous().view(uint8)}
    if extra := len(batch) - len(hashes):
        what = f"{extra} of {len(batch)} samples are exact copies of others"
        return warning("duplicates", what, "remove the copies, which count twice in all results")
    return passed("duplicates", f"all {len(batch)} samples differ")


def _flat(batch: Batch) -> Iterator[Finding]:
    """Samples, or channels of samples, that are constant."""
    channels = batch.x.flatten(2).amin(-1) == batch.x.flatten(2).amax(-1)
    whole = batch.x.flatten(1).amin(-1) == batch.x.flatten(1).amax(-1)
    partly = channels.any(1) & ~whole
    if whole.any():
        what = f"{int(whole.sum())} of {len(batch)} samples are constant: {_names(batch, whole)}"
        yield warning("flat", what, "remove them: there is nothing to classify or distort")
    else:
        yield passed("flat", f"none of {len(batch)} samples is constant")
    if partly.any():
        what = f"{int(partly.sum())} of {len(batch)} samples have a constant channel: {_names(batch, partly)}"
        yield note("flat", what, "check for a disconnected lead or an empty channel")


def _names(batch: Batch, rows: Tensor) -> str:
    """The first ids of the samples where `rows` (b,) is true."""
    ids = [batch.ids[row] for row in rows.nonzero().flatten().tolist()]
    return ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
