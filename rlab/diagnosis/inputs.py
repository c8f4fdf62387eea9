"""Does the model see what it was trained on? Other scales, normalisations, channel orders and layouts are tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from rlab.data.batch import UNBOUNDED
from rlab.diagnosis.probe import PHASE, Normalising, Probe, changed
from rlab.diagnosis.report import RISE, Finding, Severity, clear_rise, error, options, sign_test, warning
from rlab.errors import InputError, VictimError
from rlab.victims.base import Unanswered, Victim
from rlab.victims.torch_module import Layout, Normalise

# Of data in [0, 1], as the models published for these data sets were trained.
IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = Normalise((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
MNIST = Normalise((0.1307,), (0.3081,))
HALF = Normalise((0.5,), (0.5,))
PLAIN = Normalise((0.0,), (1.0,))
BYTES = Normalise((0.0,), (1 / 255,))
_ORDER = "channel-order"
_ABOVE = 0.2  # by how much accuracy must beat an answer that ignores the input, before a cause is named
_TIED = 0.125  # of accuracy: two samples of 16
_HINT = 0.01  # chance below which more trust in the labels alone makes a channel order suspect


@dataclass(frozen=True)
class Variant:
    """One suspicion: what to do to x before the victim gets it, and what to change if that turns out to be right."""

    name: str
    told: str
    change: str
    steps: tuple[Callable[[Tensor], Tensor], ...]  # each (b, c, *size) -> (b, c, *size)
    flag: str = ""

    def scored(self, probe: Probe) -> VariantScores:
        x = probe.batch.x
        for step in self.steps:
            x = step(x)
        scores = probe.scores(x)
        return VariantScores(self, probe.correct(scores), probe.trust(scores))


class VariantScores(NamedTuple):
    variant: Variant
    correct: Tensor  # (b,)
    trust: Tensor  # (b,)

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())


def input_findings(probe: Probe, scores: Tensor) -> list[Finding]:
    """At most nine passes over the samples; one, or in doubt five, where the model is right on most of them."""
    now = VariantScores(Variant("", "", "", ()), probe.correct(scores), probe.trust(scores))
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
        with suppress(VictimError, InputError):  # values so foreign that the model gives up: not what it wants
            scored.append(variant.scored(probe))
    return scored


def _ranked(now: VariantScores, scored: list[VariantScores]) -> list[VariantScores]:
    """Those that few samples cannot tell from the most accurate, the one that trusts the labels most first."""
    most = max((other.accuracy for other in scored), default=0.0)
    least = min(most, max(most - _TIED, now.accuracy + RISE))
    tied = [other for other in scored if other.accuracy >= least] or [now]
    return sorted(tied, key=lambda other: float(other.trust.mean()), reverse=True)


def _clear(probe: Probe, now: VariantScores, best: VariantScores) -> Severity | None:
    """A clear rise, to more than an answer that ignores the input would get."""
    return clear_rise(now.correct, best.correct) if best.accuracy >= probe.guessing() + _ABOVE else None


def _finding(level: Severity, now: VariantScores, best: VariantScores, equals: Sequence[VariantScores] = ()) -> Finding:
    what = f"accuracy on {len(now.correct)} samples is {now.accuracy:.2f} as they come and {best.accuracy:.2f} {best.variant.told}"
    what += "".join(f"; {other.accuracy:.2f} {other.variant.told}" for other in equals[:2])
    change = best.variant.change
    if equals:
        others = ", or ".join(other.variant.change for other in equals[:2])
        change += f"; so few samples cannot rule out to {others}: the model's documentation tells"
    return Finding(level, best.variant.name, what, change, best.variant.flag)


def _reversal(probe: Probe, *steps: Callable[[Tensor], Tensor]) -> list[Variant]:
    """The channels reversed before `steps`, where there are three."""
    change = "reverse the channels when loading the data or before the model, x.flip(1): one of the two is BGR"
    reversal = Variant(_ORDER, "with the channels reversed", change, (lambda x: x.flip(1), *steps))
    return [reversal] if probe.batch.x.shape[1] == 3 else []


def _reversed(probe: Probe, now: VariantScores, orders: list[VariantScores], passes: int = 0) -> list[Finding]:
    """Reversing channels leaves the scale alone, so that trust in the labels may be compared as well as accuracy."""
    for flipped in orders:
        if level := _clear(probe, now, flipped):
            return [_finding(level, now, flipped)]
        now, flipped = _joined(probe, now, flipped, passes)
        if flipped.accuracy >= now.accuracy and sign_test(now.trust, flipped.trust) < _HINT:
            up, variant = int((flipped.trust > now.trust).sum()), flipped.variant
            what = f"{up} of {len(now.trust)} samples are given a higher probability of their label {variant.told}"
            return [warning(variant.name, what, variant.change)]
    return []


def _joined(probe: Probe, now: VariantScores, flipped: VariantScores, passes: int) -> Iterable[VariantScores]:
    """Both on up to `passes` times as many other samples as well, unless the first ones speak against reversing."""
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
    for name, told, aim in _aims(probe, bounded):
        if aim != own:
            yield Variant(name, told, _pass(probe, aim), (aim, inverse(own)), _flag(probe, aim))
    if not bounded:
        change = "standardise every sample and channel when loading the data: take its mean away, divide by its std"
        yield Variant("normalisation", "standardised", change, (_standardised, inverse(own)))
    if probe.normalise is None:
        for usual in (*_published(probe)[:1], HALF):
            told = f"with a normalisation by mean={_say(usual.mean)}, std={_say(usual.std)} undone: it is applied twice"
            change = "normalise once only, in the data, in the wrapped function or in the model"
            undo = (PLAIN.within(bounds), inverse(usual.within(bounds))) if bounded else (inverse(usual),)
            yield Variant("normalisation", told, change, undo)


def _aims(probe: Probe, bounded: bool) -> Iterator[tuple[str, str, Normalise]]:
    """What the model may want to see, as a normalisation of the data in their own units."""
    if not bounded:
        yield "bounds", "with values 1000 times larger, as in another unit", Normalise((0.0,), (1e-3,))
        yield "bounds", "with values 1000 times smaller, as in another unit", Normalise((0.0,), (1e3,))
        yield "normalisation", "without mean and std: data or model are normalised already", PLAIN
        return
    bounds = probe.batch.bounds
    yield "bounds", "with values from 0 to 255", BYTES.within(bounds)
    yield "bounds", "with values from -1 to 1", HALF.within(bounds)
    if probe.normalise is None:
        yield "bounds", "with values from 0 to 1", PLAIN.within(bounds)
    else:
        yield "normalisation", "without mean and std: the model normalises by itself", PLAIN.within(bounds)
    for usual in _published(probe):
        told = f"normalised by mean={_say(usual.mean)}, std={_say(usual.std)} of data in [0, 1]"
        yield "normalisation", told, usual.within(bounds)


def _published(probe: Probe) -> list[Normalise]:
    return {1: [MNIST], 3: [IMAGENET, CIFAR10]}.get(probe.batch.x.shape[1], [])


def _pass(probe: Probe, aim: Normalise) -> str:
    mean, std = _say(aim.mean), _say(aim.std)
    if not isinstance(probe.victim, Normalising):
        return f"compute (x - {mean}) / {std} before the model, in the function or server that answers"
    return f"leave mean and std out of {probe.kind}" if aim == PLAIN else f"pass mean={mean}, std={std} to {probe.kind}"


def _flag(probe: Probe, aim: Normalise) -> str:
    """Only where mean and std are options of the model, and are to be given rather than left out."""
    if not isinstance(probe.victim, Normalising) or aim == PLAIN:
        return ""
    mean, std = (tuple(float(f"{value:.6g}") for value in values) for values in (aim.mean, aim.std))
    return options(mean=mean, std=std)


def _say(values: tuple[float, ...]) -> str:
    texts = [f"{value:.4g}" for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def inverse(normalise: Normalise) -> Normalise:
    """x * std + mean, as a normalisation."""
    width = max(len(normalise.mean), len(normalise.std))
    mean, std = (v * (width // len(v)) for v in (normalise.mean, normalise.std))
    return Normalise(tuple(-m / s for m, s in zip(mean, std, strict=True)), tuple(1 / s for s in std))


def _standardised(x: Tensor) -> Tensor:
    """(b, c, *size) -> each channel of each sample with mean 0 and standard deviation 1."""
    flat = x.flatten(2)
    spread = flat.std(2, keepdim=True, correction=0).clamp(min=1e-8)
    return ((flat - flat.mean(2, keepdim=True)) / spread).view_as(x)


def failure(probe: Probe, problem: Exception) -> Finding:
    """One finding for a model that raised; costs at most four rows."""
    first = probe.batch.x[:1]
    if not isinstance(problem.__cause__, Unanswered):
        for told, change, victim, x in _arrangements(probe, first):
            if _answers(victim, x):
                flag = options(layout="frames_first") if "pass layout='frames_first'" in change else ""
                return error("layout", f"{problem}; {told}", change, flag)
        numbers = {"outputs": "labels", "classes": probe.classes()}
        if not probe.victim.multilabel and _answers(probe.victim, first, **numbers):
            change = f"pass outputs='labels' and how many classes there are, {numbers['classes']} by the data's labels"
            return error(
                "outputs", f"the model tells a class number and no scores: {problem}", change, options(**numbers)
            )
    shape = tuple(first.shape)
    change = f"call the model by itself on one input of shape {shape} until it returns scores of shape (1, classes)"
    return error("model", str(problem), change)


def other_layout(probe: Probe, scores: Tensor) -> list[Finding]:
    """A video model that views its input anew takes frames and channels in either order, and is right in one only."""
    victim, batch = probe.victim, probe.batch
    now = probe.correct(scores)
    if batch.kind != "video" or not isinstance(victim, Normalising) or float(now.mean()) > 1 - RISE:
        return []
    other: Layout = "channels_first" if victim.layout == "frames_first" else "frames_first"
    try:
        then = probe.correct(changed(victim, layout=other)(batch.x, PHASE))
    except (VictimError, InputError):
        return []
    level = clear_rise(now, then)
    if level is None:
        return []
    order = "the frames before the channels" if other == "frames_first" else "the channels before the frames"
    what = f"accuracy on {len(now)} samples is {float(now.mean()):.2f} as they come and {float(then.mean()):.2f} with {order}"
    return [Finding(level, "layout", what, f"pass layout={other!r} to {probe.kind}", options(layout=other))]


def _answers(victim: Victim, x: Tensor, **settings: object) -> bool:
    try:
        changed(victim, **{"bounds": UNBOUNDED, "outputs": "auto", **settings})(x, PHASE)
    except (VictimError, InputError):
        return False
    return True


def _arrangements(probe: Probe, x: Tensor) -> Iterator[tuple[str, str, Victim, Tensor]]:
    """x: (1, c, *size) in every other way a model may want it: what to tell, what to change, the model and its input."""
    victim, kind = probe.victim, probe.kind
    if isinstance(victim, Normalising) and victim.layout == "frames_first":
        told = "with the channels before the frames it answers"
        yield told, f"leave layout='frames_first' out of {kind}", changed(victim, layout="channels_first"), x
    elif probe.batch.kind == "video":
        told = "with the frames before the channels it answers"
        if isinstance(victim, Normalising):
            yield told, f"pass layout='frames_first' to {kind}", changed(victim, layout="frames_first"), x
        else:
            change = "swap the axes before the model, x.swapaxes(1, 2): it wants (samples, frames, channels, ...)"
            yield told, change, victim, x.transpose(1, 2)
    change = "move the channels to the end before the model, np.moveaxis(x, 1, -1) or x.movedim(1, -1)"
    plain = changed(victim, normalise=None) if isinstance(victim, Normalising) else victim  # their axis is another one
    yield "with the channels as the last axis it answers", change, plain, x.movedim(1, -1)
    if x.shape[1] == 1:
        change = "load the data in colour, or repeat it 3 times"
        yield "with three channels it answers", change, victim, x.repeat_interleave(3, 1)
    if x.shape[1] == 3:
        change = "load the data in grey, or take the mean over the channels"
        yield "with a single channel it answers", change, victim, x.mean(1, keepdim=True)
