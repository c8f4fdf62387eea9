"""Does the model receive what it was trained on? Try other scales, normalisations, channel orders and layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from rlab.diagnosis.probe import PHASE, Probe
from rlab.diagnosis.report import RISE, Finding, Severity, clear_rise, error, options, sign_test, warning
from rlab.errors import InputError, VictimError
from rlab.victims.base import Victim
from rlab.victims.failures import Unanswered
from rlab.victims.reading import UNBOUNDED, Layout, Normalise

# For data in [0, 1], as in published models for these data sets.
IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
MNIST = Normalise((0.1307,), (0.3081,))
HALF = Normalise((0.5,), (0.5,))
PLAIN = Normalise((0.0,), (1.0,))
BYTES = Normalise((0.0,), (1 / 255,))
ORDER = "channel-order"
_PUBLISHED = {1: [MNIST], 3: [IMAGENET, CIFAR10]}  # by number of channels
_FRAMES: dict[Layout, str] = {"frames_first": "frames before channels", "channels_first": "channels before frames"}
_ABOVE = 0.2  # accuracy above guessing that is needed to name a cause
_TIED = 0.125  # difference in accuracy: two samples of 16
_HINT = 0.01  # a rise of the labels' probabilities less likely than this by chance makes a channel order suspect
Change = Callable[[Tensor], Tensor]  # (b, c, *size) -> (b, c, *size)


@dataclass(frozen=True)
class Variant:
    """A possible cause: what to do to x first, and what to change if that helps."""

    name: str = ""
    how: str = ""
    change: str = ""
    prepare: Change = lambda x: x
    flag: str = ""
    layout: Layout | None = None  # in which the model gets x, if not as now


class Trial(NamedTuple):
    """How right the model is on a variant of the inputs."""

    variant: Variant
    correct: Tensor  # (b,)
    trust: Tensor  # (b,)

    @classmethod
    def of(cls, probe: Probe, scores: Tensor, variant: Variant | None = None) -> Trial:
        return cls(variant or Variant(), probe.correct(scores), probe.trust(scores))

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


def input_findings(probe: Probe, scores: Tensor) -> list[Finding]:
    """At most nine passes over the samples; one, or five in doubt, if the model is right on most of them."""
    now = Trial.of(probe, scores)
    reversals = _tried(probe, _reversal(probe))
    if now.accuracy > 1 - RISE:
        return _reversed(probe, now, reversals, passes=2)
    best, *equals = _ranked(now, [*reversals, *_tried(probe, _variants(probe))])
    level = _clear(probe, now, best)
    if level is None or best.variant.name == ORDER:
        return _reversed(probe, now, reversals, passes=1)
    on_top = _tried(probe, _reversal(probe, best.variant.prepare))
    return [_finding(probe, level, now, best, equals), *_reversed(probe, best, on_top)]


def _tried(probe: Probe, variants: Iterable[Variant]) -> list[Trial]:
    trials = []
    for variant in variants:
        with suppress(VictimError, InputError):  # the model cannot handle such values
            trials.append(Trial.of(probe, probe.scores(variant.prepare(probe.batch.x), variant.layout), variant))
    return trials


def _ranked(now: Trial, trials: list[Trial]) -> list[Trial]:
    """The most accurate variants that few samples cannot distinguish, highest probability of the labels first."""
    most = max((trial.accuracy for trial in trials), default=0.0)
    least = min(most, max(most - _TIED, now.accuracy + RISE))
    tied = [trial for trial in trials if trial.accuracy >= least] or [now]
    return sorted(tied, key=lambda trial: float(trial.trust.mean()), reverse=True)


def _clear(probe: Probe, now: Trial, best: Trial) -> Severity | None:
    """A clear rise to an accuracy above guessing."""
    return clear_rise(now.correct, best.correct) if best.accuracy >= probe.guessing() + _ABOVE else None


def _finding(probe: Probe, level: Severity, now: Trial, best: Trial, equals: Sequence[Trial] = ()) -> Finding:
    what = f"{probe.measure} on {len(now.correct)} samples is {now.accuracy:.2f}, but {best.accuracy:.2f} {best.variant.how}"
    what += "".join(f"; {other.accuracy:.2f} {other.variant.how}" for other in equals[:2])
    change = best.variant.change
    if equals:
        others = ", or ".join(other.variant.change for other in equals[:2])
        change += f"; or possibly {others}: check the model's documentation"
    return Finding(level, best.variant.name, what, change, best.variant.flag)


def _reversal(probe: Probe, after: Change = lambda x: x) -> list[Variant]:
    """Reversed channels before another change, if there are three."""
    change = "reverse the channels of the data with x.flip(1): either the data or the model uses BGR"
    reversal = Variant(ORDER, "with the channels reversed", change, _chain(lambda x: x.flip(1), after))
    return [reversal] if probe.batch.x.shape[1] == 3 else []


def _reversed(probe: Probe, now: Trial, reversals: list[Trial], passes: int = 0) -> list[Finding]:
    """Reversed channels do not change the scale, so the labels' probabilities can be compared as well as accuracy."""
    for flipped in reversals:
        if level := _clear(probe, now, flipped):
            return [_finding(probe, level, now, flipped)]
        now, flipped = _joined(probe, now, flipped, passes)
        least = max(now.accuracy, probe.guessing() + _ABOVE)  # else the labels are wrong, not the order
        if flipped.accuracy >= least and sign_test(now.trust, flipped.trust) < _HINT:
            up, variant = int((flipped.trust > now.trust).sum()), flipped.variant
            what = f"the probability of the label is higher for {up} of {len(now.trust)} samples {variant.how}"
            return [warning(variant.name, what, variant.change)]
    return []


def _joined(probe: Probe, now: Trial, flipped: Trial, passes: int) -> Iterable[Trial]:
    """Both on up to `passes` times as many further samples, unless the first ones contradict a reversal."""
    against = (flipped.trust > now.trust).sum() <= (flipped.trust < now.trust).sum()
    if against or not passes or probe.more is None:
        return now, flipped
    again = _tried(replace(probe, batch=probe.more[:: 2 // passes]), (now.variant, flipped.variant))
    if len(again) < 2:
        return now, flipped
    pairs = zip((now, flipped), again, strict=True)
    return (Trial(old.variant, *map(torch.cat, zip(old[1:], new[1:], strict=True))) for old, new in pairs)


def _variants(probe: Probe) -> Iterator[Variant]:
    """Other scales and normalisations: undo what the model does first, then do the other."""
    own, bounds = probe.victim.reading.normalise or PLAIN, probe.batch.bounds
    bounded, back = math.isfinite(bounds[1] - bounds[0]), inverse(own)
    for name, how, aim in _aims(probe, bounded):
        if aim != own:
            change, flag = _advice(probe, aim)
            yield Variant(name, how, change, _chain(aim, back), flag)
    if probe.batch.kind == "video" and "layout" in probe.victim.reads:
        layout = _other_frames(probe)
        change, flag = _layout_advice(probe, layout)
        yield Variant("layout", f"with {_FRAMES[layout]}", change, flag=flag, layout=layout)
    if not bounded:
        change = "standardise each sample and channel when you load the data: subtract its mean, divide by its std"
        yield Variant("normalisation", "standardised", change, _chain(_standardised, back))
    if own == PLAIN:
        for usual in (*_PUBLISHED.get(probe.batch.x.shape[1], [])[:1], HALF):
            how = f"without a second normalisation by mean={_say(usual.mean)}, std={_say(usual.std)}"
            change = "normalise only once: in the data, in the wrapped function or in the model"
            first, then = (PLAIN.within(bounds), usual.within(bounds)) if bounded else (PLAIN, usual)
            yield Variant("normalisation", how, change, _chain(first, inverse(then)))


def _aims(probe: Probe, bounded: bool) -> Iterator[tuple[str, str, Normalise]]:
    """What the model may expect, as normalisations of the data in their own units."""
    bounds, omit = probe.batch.bounds, "without mean and std, because "
    if not bounded:
        yield "bounds", "with values 1000 times larger", Normalise((0.0,), (1e-3,))
        yield "bounds", "with values 1000 times smaller", Normalise((0.0,), (1e3,))
        yield "normalisation", f"{omit}the data or the model are already normalised", PLAIN
        return
    yield "bounds", "with values from 0 to 255", BYTES.within(bounds)
    yield "bounds", "with values from -1 to 1", HALF.within(bounds)
    plain = ("bounds", "with values from 0 to 1"), ("normalisation", f"{omit}the model normalises its input")
    yield *plain[probe.victim.reading.normalise is not None], PLAIN.within(bounds)
    for usual in _PUBLISHED.get(probe.batch.x.shape[1], []):
        how = f"normalised with mean={_say(usual.mean)}, std={_say(usual.std)} of data in [0, 1]"
        yield "normalisation", how, usual.within(bounds)


def _advice(probe: Probe, aim: Normalise) -> tuple[str, str]:
    """What to change, and the same as options if the model takes mean and std and they are not to be omitted."""
    said, kind = (_say(aim.mean), _say(aim.std)), type(probe.victim).__name__
    if "mean" not in probe.victim.reads:
        return "compute (x - {}) / {} before the model, in your server".format(*said), ""
    if aim == PLAIN:
        return f"omit mean and std in {kind}", ""
    mean, std = (tuple(float(f"{value:.6g}") for value in values) for values in (aim.mean, aim.std))
    return f"pass mean={said[0]}, std={said[1]} to {kind}", options(mean=mean, std=std)


def _chain(first: Change, then: Change) -> Change:
    return lambda x: then(first(x))


def _say(values: tuple[float, ...]) -> str:
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def inverse(normalise: Normalise) -> Normalise:
    """x * std + mean, as a normalisation."""
    width = max(len(normalise.mean), len(normalise.std))
    mean, std = (v * (width // len(v)) for v in (normalise.mean, normalise.std))
    return Normalise(tuple(-m / s for m, s in zip(mean, std, strict=True)), tuple(1 / s for s in std))


def _standardised(x: Tensor) -> Tensor:
    """(b, c, *size) -> the same with mean 0 and standard deviation 1 in each channel of each sample."""
    flat = x.flatten(2)
    spread = flat.std(2, keepdim=True, correction=0).clamp(min=1e-8)
    return ((flat - flat.mean(2, keepdim=True)) / spread).view_as(x)


def failure(probe: Probe, problem: Exception) -> Finding:
    """The finding for a model that raised an error; needs at most four queries."""
    first, classes = probe.batch.x[:1], probe.classes()
    if not isinstance(problem.__cause__, Unanswered):
        plain = probe.victim.read_as(outputs="auto", mean=None, std=None)  # these are for the axis of channels
        for order, change, flag, x in _arrangements(probe, first):
            if _answers(plain, x):
                return error("layout", f"{problem}; it answers with {order}", change, flag)
        if not probe.victim.multilabel and _answers(probe.victim.read_as(outputs="labels", classes=classes), first):
            change = f"pass outputs='labels' and the number of classes: {classes} according to the labels"
            what = f"the model returns class numbers instead of scores: {problem}"
            return error("outputs", what, change, options(outputs="labels", classes=classes))
    change = f"make sure that the model turns one input of shape {tuple(first.shape)} into scores of shape (1, classes)"
    return error("model", str(problem), change)


def _answers(victim: Victim, x: Tensor) -> bool:
    try:
        victim.read_as(bounds=UNBOUNDED)(x, PHASE)
    except (VictimError, InputError):
        return False
    return True


def _arrangements(probe: Probe, x: Tensor) -> Iterator[tuple[str, str, str, Tensor]]:
    """x: (1, c, *size) in all other orders a model may expect: the order, what to change, as a flag, and x in this order."""
    if probe.batch.kind == "video":
        layout = _other_frames(probe)
        yield _FRAMES[layout], *_layout_advice(probe, layout), x.transpose(1, 2)
    yield "channels as the last axis", *_layout_advice(probe, "channels_last"), x.movedim(1, -1)
    flag = "-D channels={}" if probe.batch.kind == "image" else ""
    if x.shape[1] == 1:
        change = "load the data in colour, or repeat the channel 3 times"
        yield "three channels", change, flag.format(3), x.repeat_interleave(3, 1)
    if x.shape[1] == 3:
        yield "one channel", "load the data in grey, or average the channels", flag.format(1), x.mean(1, keepdim=True)


def _other_frames(probe: Probe) -> Layout:
    """The order of frames and channels that the model does not get now."""
    return "channels_first" if probe.victim.reading.layout == "frames_first" else "frames_first"


def _layout_advice(probe: Probe, layout: Layout) -> tuple[str, str]:
    """What to change for another order of axes, and the same as options if the model takes a layout."""
    if "layout" in probe.victim.reads:
        return f"pass layout={layout!r} to {type(probe.victim).__name__}", options(layout=layout)
    return f"arrange the inputs as layout {layout!r} in the template or in the server", ""
