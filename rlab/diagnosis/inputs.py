"""Does the model receive what it was trained on? Try other scales, normalisations, channel orders and layouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from rlab.diagnosis.probe import PHASE, Normalising, Probe
from rlab.diagnosis.report import RISE, Check, Finding, Severity, clear_rise, error, options, sign_test, warning
from rlab.errors import InputError, VictimError
from rlab.victims.base import Victim
from rlab.victims.reading import UNBOUNDED, Layout, Normalise
from rlab.victims.sending import Unanswered

# For data in [0, 1], as in published models for these data sets.
IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
MNIST = Normalise((0.1307,), (0.3081,))
HALF = Normalise((0.5,), (0.5,))
PLAIN = Normalise((0.0,), (1.0,))
BYTES = Normalise((0.0,), (1 / 255,))
_ORDER = "channel-order"
_ORDERS: dict[Layout, str] = {"frames_first": "frames before channels", "channels_first": "channels before frames"}
_ABOVE = 0.2  # accuracy above guessing that is needed to name a cause
_TIED = 0.125  # difference in accuracy: two samples of 16
_HINT = 0.01  # a rise of the labels' probabilities less likely than this by chance makes a channel order suspect


@dataclass(frozen=True)
class Variant:
    """A possible cause: what to do to x first, and what to change if that helps."""

    name: str
    how: str
    change: str
    steps: tuple[Callable[[Tensor], Tensor], ...]  # each (b, c, *size) -> (b, c, *size)
    flag: str = ""


class VariantScores(NamedTuple):
    variant: Variant
    correct: Tensor  # (b,)
    trust: Tensor  # (b,)

    @classmethod
    def of(cls, variant: Variant, probe: Probe, scores: Tensor) -> VariantScores:
        return cls(variant, probe.correct(scores), probe.trust(scores))

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


def input_findings(probe: Probe, scores: Tensor) -> list[Finding]:
    """At most nine passes over the samples; one, or five in doubt, if the model is right on most of them."""
    now = VariantScores.of(Variant("", "", "", ()), probe, scores)
    orders = _all(probe, _reversal(probe))
    if now.accuracy > 1 - RISE:
        return _reversed(probe, now, orders, passes=2)
    best, *equals = _ranked(now, [*orders, *_all(probe, _variants(probe))])
    level = _clear(probe, now, best)
    if level is None or best.variant.name == _ORDER:
        return _reversed(probe, now, orders, passes=1)
    on_top = _all(probe, _reversal(probe, *best.variant.steps))
    return [_finding(level, now, best, equals), *_reversed(probe, best, on_top)]


def _all(probe: Probe, variants: Iterable[Variant]) -> list[VariantScores]:
    scored = []
    for variant in variants:
        with suppress(VictimError, InputError):  # the model cannot handle such values
            x = reduce(lambda x, step: step(x), variant.steps, probe.batch.x)
            scored.append(VariantScores.of(variant, probe, probe.scores(x)))
    return scored


def _ranked(now: VariantScores, scored: list[VariantScores]) -> list[VariantScores]:
    """The most accurate variants that few samples cannot distinguish, highest probability of the labels first."""
    most = max((other.accuracy for other in scored), default=0.0)
    least = min(most, max(most - _TIED, now.accuracy + RISE))
    tied = [other for other in scored if other.accuracy >= least] or [now]
    return sorted(tied, key=lambda other: float(other.trust.mean()), reverse=True)


def _clear(probe: Probe, now: VariantScores, best: VariantScores) -> Severity | None:
    """A clear rise to an accuracy above guessing."""
    return clear_rise(now.correct, best.correct) if best.accuracy >= probe.guessing() + _ABOVE else None


def _finding(level: Severity, now: VariantScores, best: VariantScores, equals: Sequence[VariantScores] = ()) -> Finding:
    what = f"accuracy on {len(now.correct)} samples is {now.accuracy:.2f}, but {best.accuracy:.2f} {best.variant.how}"
    what += "".join(f"; {other.accuracy:.2f} {other.variant.how}" for other in equals[:2])
    change = best.variant.change
    if equals:
        others = ", or ".join(other.variant.change for other in equals[:2])
        change += f"; or possibly {others}: check the model's documentation"
    return Finding(level, best.variant.name, what, change, best.variant.flag)


def _reversal(probe: Probe, *steps: Callable[[Tensor], Tensor]) -> list[Variant]:
    """Reversed channels before `steps`, if there are three."""
    change = "reverse the channels of the data with x.flip(1): either the data or the model uses BGR"
    reversal = Variant(_ORDER, "with the channels reversed", change, (lambda x: x.flip(1), *steps))
    return [reversal] if probe.batch.x.shape[1] == 3 else []


def _reversed(probe: Probe, now: VariantScores, orders: list[VariantScores], passes: int = 0) -> list[Finding]:
    """Reversed channels do not change the scale, so the labels' probabilities can be compared as well as accuracy."""
    for flipped in orders:
        if level := _clear(probe, now, flipped):
            return [_finding(level, now, flipped)]
        now, flipped = _joined(probe, now, flipped, passes)
        least = max(now.accuracy, probe.guessing() + _ABOVE)  # else the labels are wrong, not the order
        if flipped.accuracy >= least and sign_test(now.trust, flipped.trust) < _HINT:
            up, variant = int((flipped.trust > now.trust).sum()), flipped.variant
            what = f"the probability of the label is higher for {up} of {len(now.trust)} samples {variant.how}"
            return [warning(variant.name, what, variant.change)]
    return []


def _joined(probe: Probe, now: VariantScores, flipped: VariantScores, passes: int) -> Iterable[VariantScores]:
    """Both on up to `passes` times as many further samples, unless the first ones contradict a reversal."""
    against = (flipped.trust > now.trust).sum() <= (flipped.trust < now.trust).sum()
    if against or not passes or probe.more is None:
        return now, flipped
    again = _all(replace(probe, batch=probe.more[:: 2 // passes]), (now.variant, flipped.variant))
    if len(again) < 2:
        return now, flipped
    pairs = zip((now, flipped), again, strict=True)
    return (VariantScores(old.variant, *map(torch.cat, zip(old[1:], new[1:], strict=True))) for old, new in pairs)


def _variants(probe: Probe) -> Iterator[Variant]:
    own, bounds = probe.normalise or PLAIN, probe.batch.bounds
    bounded = math.isfinite(bounds[1] - bounds[0])
    for name, how, aim in _aims(probe, bounded):
        if aim != own:
            change, flag = _advice(probe, aim)
            yield Variant(name, how, change, (aim, inverse(own)), flag)
    if not bounded:
        change = "standardise each sample and channel when you load the data: subtract its mean, divide by its std"
        yield Variant("normalisation", "standardised", change, (_standardised, inverse(own)))
    if probe.normalise is None:
        for usual in (*_published(probe)[:1], HALF):
            how = f"without a second normalisation by mean={_say(usual.mean)}, std={_say(usual.std)}"
            change = "normalise only once: in the data, in the wrapped function or in the model"
            undo = (PLAIN.within(bounds), inverse(usual.within(bounds))) if bounded else (inverse(usual),)
            yield Variant("normalisation", how, change, undo)


def _aims(probe: Probe, bounded: bool) -> Iterator[tuple[str, str, Normalise]]:
    """What the model may expect, as normalisations of the data in their own units."""
    if not bounded:
        yield "bounds", "with values 1000 times larger", Normalise((0.0,), (1e-3,))
        yield "bounds", "with values 1000 times smaller", Normalise((0.0,), (1e3,))
        yield "normalisation", "without mean and std, because the data or the model are already normalised", PLAIN
        return
    bounds = probe.batch.bounds
    yield "bounds", "with values from 0 to 255", BYTES.within(bounds)
    yield "bounds", "with values from -1 to 1", HALF.within(bounds)
    if probe.normalise is None:
        yield "bounds", "with values from 0 to 1", PLAIN.within(bounds)
    else:
        yield "normalisation", "without mean and std, because the model normalises its input", PLAIN.within(bounds)
    for usual in _published(probe):
        how = f"normalised with mean={_say(usual.mean)}, std={_say(usual.std)} of data in [0, 1]"
        yield "normalisation", how, usual.within(bounds)


def _published(probe: Probe) -> list[Normalise]:
    return {1: [MNIST], 3: [IMAGENET, CIFAR10]}.get(probe.batch.x.shape[1], [])


def _advice(probe: Probe, aim: Normalise) -> tuple[str, str]:
    """What to change, and the same as options if the model takes mean and std and they are not to be omitted."""
    said, kind = (_say(aim.mean), _say(aim.std)), type(probe.victim).__name__
    if not isinstance(probe.victim, Normalising):
        return "compute (x - {}) / {} before the model, in your function or server".format(*said), ""
    if aim == PLAIN:
        return f"omit mean and std in {kind}", ""
    mean, std = (tuple(float(f"{value:.6g}") for value in values) for values in (aim.mean, aim.std))
    return f"pass mean={said[0]}, std={said[1]} to {kind}", options(mean=mean, std=std)


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
    first = probe.batch.x[:1]
    if not isinstance(problem.__cause__, Unanswered):
        for order, change, flag, victim, x in _arrangements(probe, first):
            if _answers(victim.read_as(outputs="auto"), x):
                return error("layout", f"{problem}; it answers with {order}", change, flag)
        classes = probe.classes()
        if not probe.victim.multilabel and _answers(probe.victim.read_as(outputs="labels", classes=classes), first):
            change = f"pass outputs='labels' and the number of classes: {classes} according to the labels"
            what = f"the model returns class numbers instead of scores: {problem}"
            return error("outputs", what, change, options(outputs="labels", classes=classes))
    change = f"make sure that the model turns one input of shape {tuple(first.shape)} into scores of shape (1, classes)"
    return error("model", str(problem), change)


def other_layout(probe: Probe, scores: Tensor) -> list[Finding]:
    """A video model that reshapes its input accepts frames and channels in either order, but only one is right."""
    victim, batch = probe.victim, probe.batch
    now = VariantScores.of(Variant("", "", "", ()), probe, scores)
    if batch.kind != "video" or not isinstance(victim, Normalising) or now.accuracy > 1 - RISE:
        return []
    other: Layout = "channels_first" if victim.reading.layout == "frames_first" else "frames_first"
    change = f"pass layout={other!r} to {type(victim).__name__}"
    swap = Variant("layout", f"with {_ORDERS[other]}", change, (), options(layout=other))
    try:
        then = VariantScores.of(swap, probe, victim.read_as(layout=other)(batch.x, PHASE))
    except (VictimError, InputError):
        return []
    level = clear_rise(now.correct, then.correct)
    return [_finding(level, now, then)] if level else []


def _answers(victim: Victim, x: Tensor) -> bool:
    try:
        victim.read_as(bounds=UNBOUNDED)(x, PHASE)
    except (VictimError, InputError):
        return False
    return True


def _arrangements(probe: Probe, x: Tensor) -> Iterator[tuple[str, str, str, Victim, Tensor]]:
    """x: (1, c, *size) in all other orders a model may expect: the order, what to change, as a flag, the model and its input."""
    victim, kind = probe.victim, type(probe.victim).__name__
    takes = isinstance(victim, Normalising)
    if isinstance(victim, Normalising) and victim.reading.layout == "frames_first":
        change = f"omit layout='frames_first' in {kind}"
        yield _ORDERS["channels_first"], change, "", victim.read_as(layout="channels_first"), x
    elif probe.batch.kind == "video" and takes:
        change = f"pass layout='frames_first' to {kind}"
        flag = options(layout="frames_first")
        yield _ORDERS["frames_first"], change, flag, victim.read_as(layout="frames_first"), x
    elif probe.batch.kind == "video":
        change = "swap the axes before the model, x.swapaxes(1, 2): it expects (samples, frames, channels, ...)"
        yield _ORDERS["frames_first"], change, "", victim, x.transpose(1, 2)
    change = "move the channels to the last axis before the model, np.moveaxis(x, 1, -1) or x.movedim(1, -1)"
    plain = victim.read_as(mean=None, std=None) if takes else victim  # mean and std are for another axis
    yield "channels as the last axis", change, "", plain, x.movedim(1, -1)
    other = {1: 3, 3: 1}.get(x.shape[1])
    flag = f"-D channels={other}" if probe.batch.kind == "image" else ""
    if other == 3:
        change = "load the data in colour, or repeat the channel 3 times"
        yield "three channels", change, flag, victim, x.repeat_interleave(3, 1)
    if other == 1:
        yield "one channel", "load the data in grey, or average the channels", flag, victim, x.mean(1, keepdim=True)


def input_checks(probe: Probe, scores: Tensor) -> list[Check]:
    three, accuracy = probe.batch.x.shape[1] == 3, float(probe.correct(scores).mean())
    right = f"accuracy {accuracy:.2f} on {len(scores)} samples{', label by label' * probe.victim.multilabel}"
    tried = "" if accuracy > 1 - RISE else "; no other scale, mean or std is clearly better"
    order = [Check(_ORDER, "no clear gain from reversed channels")] if three else []
    return [
        Check("normalisation", f"{right}{tried}", ("bounds", "layout")),
        *order,
        Check("accuracy", f"{right}; guessing gives {probe.guessing():.2f}", ("constant", "labels")),
    ]
