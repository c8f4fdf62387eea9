"""The model did not answer, or answered as if it could not see: which arrangement of the input would it take?"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from rlab.data.batch import UNBOUNDED
from rlab.diagnosis.chance import RISE, clear_rise
from rlab.diagnosis.probe import PHASE, Normalising, Probe
from rlab.diagnosis.report import Finding, error
from rlab.errors import InputError, VictimError
from rlab.victims.base import Unanswered, Victim


class Arrangement(NamedTuple):
    told: str
    change: str
    victim: Victim
    x: Tensor


def failure(probe: Probe, problem: Exception) -> Finding:
    """One finding for a model that raised; costs at most three rows."""
    one = probe.batch.x[:1]
    if not isinstance(problem.__cause__, Unanswered):
        for way in _arrangements(probe, one):
            if _answers(way):
                return error("layout", f"{problem}; {way.told}", way.change)
    shape = tuple(one.shape)
    change = f"call the model by itself on one input of shape {shape} until it returns scores of shape (1, classes)"
    return error("model", str(problem), change)


def other_layout(probe: Probe, scores: Tensor) -> list[Finding]:
    """A video model that views its input anew takes frames and channels in either order, and is right in one only."""
    victim, batch = probe.victim, probe.batch
    now = probe.correct(scores)
    if batch.kind != "video" or not isinstance(victim, Normalising) or float(now.mean()) > 1 - RISE:
        return []
    other = "channels_first" if victim.layout == "frames_first" else "frames_first"
    try:
        then = probe.correct(_laid(victim, other)(batch.x, PHASE))
    except (VictimError, InputError):
        return []
    level = clear_rise(now, then)
    if level is None:
        return []
    said = "the frames before the channels" if other == "frames_first" else "the channels before the frames"
    what = f"accuracy on {len(now)} samples is {float(now.mean()):.2f} as they come and {float(then.mean()):.2f} with {said}"
    return [Finding(level, what, f"pass layout={other!r} to {probe.kind}", "layout")]


def _answers(way: Arrangement) -> bool:
    victim = copy.copy(way.victim)
    victim.bounds, victim.outputs = UNBOUNDED, "auto"
    try:
        victim(way.x, PHASE)
    except (VictimError, InputError):
        return False
    return True


def _arrangements(probe: Probe, x: Tensor) -> Iterator[Arrangement]:
    """x: (1, c, *size) in every other way a model may want it."""
    victim, kind = probe.victim, probe.kind
    if isinstance(victim, Normalising) and victim.layout == "frames_first":
        told = "with the channels before the frames it answers"
        yield Arrangement(told, f"leave layout='frames_first' out of {kind}", _laid(victim, "channels_first"), x)
    elif probe.batch.kind == "video":
        told = "with the frames before the channels it answers"
        if isinstance(victim, Normalising):
            yield Arrangement(told, f"pass layout='frames_first' to {kind}", _laid(victim, "frames_first"), x)
        else:
            change = "swap the axes before the model, x.swapaxes(1, 2): it wants (samples, frames, channels, ...)"
            yield Arrangement(told, change, victim, x.transpose(1, 2))
    last = "move the channels to the end before the model, np.moveaxis(x, 1, -1) or x.movedim(1, -1)"
    yield Arrangement("with the channels as the last axis it answers", last, _plain(victim), x.movedim(1, -1))
    if x.shape[1] == 1:
        three = x.repeat_interleave(3, 1)
        yield Arrangement(
            "with three channels it answers", "load the data in colour, or repeat it 3 times", victim, three
        )
    if x.shape[1] == 3:
        change = "load the data in grey, or take the mean over the channels"
        yield Arrangement("with a single channel it answers", change, victim, x.mean(1, keepdim=True))


def _laid(victim: Normalising, layout: str) -> Victim:
    other = copy.copy(victim)
    other.layout = "frames_first" if layout == "frames_first" else "channels_first"
    return other


def _plain(victim: Victim) -> Victim:
    """Without mean and std, whose axis would be another one."""
    other = copy.copy(victim)
    if isinstance(other, Normalising):
        other.normalise = None
    return other
