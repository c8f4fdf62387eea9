"""Does the model see what it was trained on? Other scales, normalisations and channel orders are tried."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rlab.diagnosis.chance import RISE, clear_rise, sign_test
from rlab.diagnosis.probe import Normalising, Probe
from rlab.diagnosis.report import Finding, Severity
from rlab.errors import InputError, VictimError
from rlab.victims.normalise import Normalise

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
class Trial:
    """One suspicion: what to hand the victim instead of x, and what to change if that turns out to be right."""

    name: str
    told: str
    change: str
    instead: Callable[[Tensor], Tensor]  # (b, c, *size) -> (b, c, *size)


class Tried(NamedTuple):
    trial: Trial
    scores: Tensor  # (b, k)
    right: Tensor  # (b,)
    trust: Tensor  # (b,)


def input_findings(probe: Probe, scores: Tensor) -> list[Finding]:
    """At most nine passes over the samples; one, or in doubt five, where the model is right on most of them."""
    now = _tried(probe, Trial("", "", "", lambda x: x), scores)
    orders = list(_all(probe, _reversal(probe, lambda x: x)))
    if float(now.right.mean()) > 1 - RISE:
        return _reversed(probe, now, orders, passes=2)
    best, *equals = _ranked(now, [*orders, *_all(probe, _trials(probe))])
    level = _clear(probe, now, best)
    if level is None or best.trial.name == _ORDER:
        return _reversed(probe, now, orders, passes=1)
    on_top = list(_all(probe, _reversal(probe, best.trial.instead)))
    return [_finding(level, now, best, equals), *_reversed(probe, best, on_top)]


def _ranked(now: Tried, tried: list[Tried]) -> list[Tried]:
    """Those that few samples cannot tell from the most accurate, the one that trusts the labels most first."""
    most = max((float(one.right.mean()) for one in tried), default=0.0)
    least = min(most, max(most - _TIED, float(now.right.mean()) + RISE))
    tied = [one for one in tried if float(one.right.mean()) >= least] or [now]
    return sorted(tied, key=lambda one: float(one.trust.mean()), reverse=True)


def _clear(probe: Probe, now: Tried, best: Tried) -> Severity | None:
    """A clear rise, to more than an answer that ignores the input would get."""
    useful = float(best.right.mean()) >= probe.guessing() + _ABOVE
    return clear_rise(now.right, best.right) if useful else None


def _all(probe: Probe, trials: Iterator[Trial]) -> Iterator[Tried]:
    for trial in trials:
        try:
            yield _tried(probe, trial, probe.scores(trial.instead(probe.batch.x)))
        except (VictimError, InputError):  # values so foreign that the model gives up: not what it wants
            continue


def _tried(probe: Probe, trial: Trial, scores: Tensor) -> Tried:
    return Tried(trial, scores, probe.correct(scores), probe.trust(scores))


def _finding(level: Severity, before: Tried, after: Tried, equals: Sequence[Tried] = ()) -> Finding:
    was, now = float(before.right.mean()), float(after.right.mean())
    what = f"accuracy on {len(before.right)} samples is {was:.2f} as they come and {now:.2f} {after.trial.told}"
    what += "".join(f"; {float(one.right.mean()):.2f} {one.trial.told}" for one in equals[:2])
    change = after.trial.change
    if equals:
        others = ", or ".join(one.trial.change for one in equals[:2])
        change += f"; so few samples cannot rule out to {others}: the model's documentation tells"
    return Finding(level, what, change, after.trial.name)


def _reversal(probe: Probe, instead: Callable[[Tensor], Tensor]) -> Iterator[Trial]:
    if probe.batch.x.shape[1] == 3:
        change = "reverse the channels when loading the data or before the model, x.flip(1): one of the two is BGR"
        yield Trial(_ORDER, "with the channels reversed", change, lambda x: instead(x.flip(1)))


def _reversed(probe: Probe, now: Tried, orders: list[Tried], passes: int = 0) -> list[Finding]:
    """Reversing channels leaves the scale alone, so that trust in the labels may be compared as well as accuracy."""
    for flipped in orders:
        if level := _clear(probe, now, flipped):
            return [_finding(level, now, flipped)]
        now, flipped = _joined(probe, now, flipped, passes)
        if flipped.right.mean() >= now.right.mean() and sign_test(now.trust, flipped.trust) < _HINT:
            up, trial = int((flipped.trust > now.trust).sum()), flipped.trial
            what = f"{up} of {len(now.trust)} samples are given a higher probability of their label {trial.told}"
            return [Finding(Severity.WARNING, what, trial.change, trial.name)]
    return []


def _joined(probe: Probe, now: Tried, flipped: Tried, passes: int) -> tuple[Tried, Tried]:
    """Both on up to `passes` times as many other samples as well, unless the first ones speak against reversing."""
    against = (flipped.trust > now.trust).sum() <= (flipped.trust < now.trust).sum()
    if against or not passes or probe.more is None:
        return now, flipped
    other = probe.on(probe.more[:: 2 // passes])
    again = list(_all(other, iter([now.trial, flipped.trial])))
    return (_join(now, again[0]), _join(flipped, again[1])) if len(again) == 2 else (now, flipped)


def _join(one: Tried, other: Tried) -> Tried:
    return Tried(one.trial, *(torch.cat(pair) for pair in zip(one[1:], other[1:], strict=True)))


def _trials(probe: Probe) -> Iterator[Trial]:
    own, bounds = probe.normalise or PLAIN, probe.batch.bounds
    bounded = math.isfinite(bounds[1] - bounds[0])
    for name, told, aim in _bounded_aims(probe) if bounded else _unbounded_aims(probe):
        if aim != own:
            yield Trial(name, told, _pass(probe, aim), _seen_as(aim, own))
    if not bounded:
        change = "standardise every sample and channel when loading the data: take its mean away, divide by its std"
        yield Trial("normalisation", "standardised", change, lambda x: inverse(own)(_standardised(x)))
    if probe.normalise is None:
        for known in (*_published(probe)[:1], HALF):
            told = f"with a normalisation by mean={_say(known.mean)}, std={_say(known.std)} undone: it is applied twice"
            change = "normalise once only, in the data, in the wrapped function or in the model"
            yield Trial("normalisation", told, change, _undo(known, bounds) if bounded else inverse(known))


def _seen_as(aim: Normalise, own: Normalise) -> Callable[[Tensor], Tensor]:
    """What to hand a victim that applies `own` so that its model sees aim(x)."""
    return lambda x: inverse(own)(aim(x))


def _undo(known: Normalise, bounds: tuple[float, float]) -> Callable[[Tensor], Tensor]:
    """x * std + mean, stated for data in [0, 1], for data in `bounds`."""
    return lambda x: inverse(known.within(bounds))(PLAIN.within(bounds)(x))


def _bounded_aims(probe: Probe) -> Iterator[tuple[str, str, Normalise]]:
    """What the model may want to see, as a normalisation of the data in their own units."""
    bounds = probe.batch.bounds
    yield "bounds", "with values from 0 to 255", BYTES.within(bounds)
    yield "bounds", "with values from -1 to 1", HALF.within(bounds)
    if probe.normalise is None:
        yield "bounds", "with values from 0 to 1", PLAIN.within(bounds)
    else:
        yield "normalisation", "without mean and std: the model normalises by itself", PLAIN.within(bounds)
    for known in _published(probe):
        told = f"normalised by mean={_say(known.mean)}, std={_say(known.std)} of data in [0, 1]"
        yield "normalisation", told, known.within(bounds)


def _unbounded_aims(probe: Probe) -> Iterator[tuple[str, str, Normalise]]:
    yield "bounds", "with values 1000 times larger, as in another unit", Normalise((0.0,), (1e-3,))
    yield "bounds", "with values 1000 times smaller, as in another unit", Normalise((0.0,), (1e3,))
    yield "normalisation", "without mean and std: data or model are normalised already", PLAIN


def _published(probe: Probe) -> list[Normalise]:
    return {1: [MNIST], 3: [IMAGENET, CIFAR10]}.get(probe.batch.x.shape[1], [])


def _pass(probe: Probe, aim: Normalise) -> str:
    mean, std = _say(aim.mean), _say(aim.std)
    if not isinstance(probe.victim, Normalising):
        return f"compute (x - {mean}) / {std} before the model, in the function or server that answers"
    if aim == PLAIN:
        return f"leave mean and std out of {probe.kind}"
    return f"pass mean={mean}, std={std} to {probe.kind}"


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
