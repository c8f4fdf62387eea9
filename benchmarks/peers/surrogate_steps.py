"""Attacks by surrogates' gradients: step by step with a query each, or on the surrogates alone with a query of the result."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from benchmarks.peers.trial import FreePixels, Trial, ask_margins, margins, walk
from rlab.core.vectors import unit, wide

_NORM_PROBES, _PROBES = 10, 50  # queries for the gradient's norm and for the gradient, as in the paper
_REACH = 1e-4  # step of finite differences, times the root of the number of values
_STEPS = 10
_STRIDE = 2.5  # total length of the steps, in radii
_HALVINGS = 10  # of the logarithmic range of the radius, once it is bracketed
_CHANGE = 0.5  # of a surrogate's weight per trial, in mean weights


def simba_ods(trial: Trial) -> NoReturn:
    """SimBA along output-diversified directions (Tashiro et al. 2020, https://arxiv.org/abs/2003.06878).

    A direction is the gradient of a random combination of a random surrogate's scores.
    """
    walk(trial, lambda samples, rival, helped, round_: _diversified(trial, samples, round_))


def gfcs(trial: Trial) -> NoReturn:
    """Gradient first, coimage second (Lord et al. 2022, https://arxiv.org/abs/2203.07596).

    Steps along each surrogate's margin gradient in random order. Once none of them helps, tries output-diversified
    directions until one does. The paper's norm bound is omitted, because here the distance is the measurement.
    """
    count = len(trial.ensemble)
    unused = torch.ones(len(trial.x), count, dtype=torch.bool, device=trial.x.device)

    def direct(samples: Tensor, rival: Tensor, helped: Tensor, round_: int) -> Tensor:
        unused[samples[helped]] = True
        left = unused[samples]
        first = left.any(1)
        number = (trial.uniform(samples, 2 * round_ + 1, count) + left.float()).argmax(1)
        unused[samples[first], number[first]] = False
        weights = _ahead(trial, samples, rival)
        out = trial.ensemble.direction(trial.space.x[samples], number, weights)
        if not first.all():
            out[~first] = _diversified(trial, samples[~first], round_)
        return out

    walk(trial, direct)


def _ahead(trial: Trial, samples: Tensor, rival: Tensor) -> Tensor:
    """(m, k): weights of scores that sum to the rival's lead over the true class."""
    weights = torch.zeros_like(trial.recorder.clean[samples])
    return weights.scatter(1, rival[:, None], 1.0).scatter(1, trial.y[samples][:, None], -1.0)


def _diversified(trial: Trial, samples: Tensor, round_: int) -> Tensor:
    classes = trial.recorder.clean.shape[1]
    draw = trial.uniform(samples, 2 * round_, classes + 1)
    number = (draw[:, 0] * len(trial.ensemble)).long()
    return trial.ensemble.direction(trial.space.x[samples], number, 2 * draw[:, 1:] - 1)


def prgf(trial: Trial) -> NoReturn:
    """Prior-guided random gradient-free (Cheng et al. 2019, https://arxiv.org/abs/1906.06919).

    Each step follows an estimate of the margin's gradient, from finite differences along random directions. These lean
    towards the surrogates' mean direction, according to its estimated cosine with the true gradient.
    """
    recorder, space, values = trial.recorder, trial.space, trial.x[0].numel()
    (best, rival), step = margins(recorder.clean, trial.y), 0
    while True:
        rows = recorder.live()
        guess = _mean_direction(trial, rows, rival[rows])
        along, squares = _derivative(trial, rows, guess, best), torch.zeros_like(best[rows])
        for probe in range(_NORM_PROBES):
            change = _derivative(trial, rows, unit(trial.normal(rows, step + probe)), best)
            squares += change.square() / _NORM_PROBES
        lean = prior_share(along.square() / (values * squares).clamp(min=1e-20), values, _PROBES)
        direction = guess * wide(along.sign(), guess)
        unsure = lean < 1
        if unsure.any():
            direction[unsure] = _estimate(trial, rows[unsure], guess[unsure], lean[unsure], best, step)
        step += _NORM_PROBES + _PROBES
        margin, following = ask_margins(recorder, space.moved(rows, trial.strength * direction), rows)
        answered = ~margin.isnan()
        best[rows[answered]], rival[rows[answered]] = margin[answered], following[answered]
        space.keep(rows[answered])


def prior_share(cosine2: Tensor, values: int, probes: int) -> Tensor:
    """The share of a probe's squared length along the guess, given its squared cosine (m,) (the paper's theorem 1)."""
    d, q = values, probes
    between = (1 - cosine2) * (cosine2 * (d + 2 * q - 1) - 1)
    between = between / (2 * cosine2 * d * q - cosine2.square() * d * (d + 2 * q - 2) - 1)
    low, high = 1 / (d + 2 * q - 2), (2 * q - 1) / (d + 2 * q - 2)
    return torch.where(cosine2 <= low, 0.0, torch.where(cosine2 >= high, 1.0, between))


def _mean_direction(trial: Trial, samples: Tensor, rival: Tensor) -> Tensor:
    x, weights = trial.space.x[samples], _ahead(trial, samples, rival)
    numbers = range(len(trial.ensemble))
    every = (trial.ensemble.direction(x, torch.full_like(samples, s), weights) for s in numbers)
    return unit(sum(every, torch.zeros_like(x)))


def _derivative(trial: Trial, samples: Tensor, direction: Tensor, best: Tensor) -> Tensor:
    """(m,): the rate at which the victim's margin falls along a direction; one query each."""
    reach = _REACH * math.sqrt(trial.x[0].numel())
    x = (trial.space.x[samples] + reach * direction).clamp(0, 1)
    return (best[samples] - ask_margins(trial.recorder, x, samples)[0]) / reach


def _estimate(trial: Trial, samples: Tensor, guess: Tensor, lean: Tensor, best: Tensor, step: int) -> Tensor:
    total = torch.zeros_like(guess)
    for probe in range(_PROBES):
        noise = trial.normal(samples, step + _NORM_PROBES + probe)
        noise = unit(noise - guess * wide((noise * guess).flatten(1).sum(1), guess))
        direction = guess * wide(lean.sqrt(), guess) + noise * wide((1 - lean).sqrt(), guess)
        change = _derivative(trial, samples, direction, best)
        total += direction * wide(change.nan_to_num(), guess)
    return unit(total)


def descend(
    trial: Trial, samples: Tensor, radius: Tensor, weights: Tensor, push: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """L2 PGD on the surrogates' weighted loss: samples (m,), radius (m,), weights (m, s) -> x (m, c, *size) and its push.

    Pass the push to continue from there.
    """
    x0, free = trial.x[samples], isinstance(trial.space, FreePixels)
    push = torch.zeros_like(x0) if push is None else push
    x, length = trial.space.within(samples, push, radius), wide(_STRIDE / _STEPS * radius, x0)
    for _ in range(_STEPS):
        push = push + length * unit(trial.ensemble.loss_gradient(x, trial.y[samples], weights))
        x = trial.space.within(samples, push, radius)
        push = x - x0 if free else push
    return x, push


def even(trial: Trial, samples: Tensor) -> Tensor:
    """Equal weights (m, s) for all surrogates."""
    return trial.x.new_full((len(samples), len(trial.ensemble)), 1 / len(trial.ensemble))


def ensemble_pgd(trial: Trial) -> None:
    """Ten steps of PGD (Madry et al. 2018) on the surrogates' mean loss within an L2 of `strength`, then one query."""
    rows = trial.recorder.live()
    x, _ = descend(trial, rows, trial.x.new_full((len(rows),), trial.strength), even(trial, rows))
    trial.space.keep(rows)
    trial.recorder.ask(x, rows)


def ensemble_pgd_min(trial: Trial) -> None:
    """`ensemble_pgd` at the smallest radius that flips.

    From `strength`, the radius doubles until a flip, halves until a failure, and then bisects in logarithms.
    """
    n = len(trial.x)
    held, won = trial.x.new_zeros(n), trial.x.new_full((n,), torch.inf)
    radius, farthest = trial.x.new_full((n,), trial.strength), math.sqrt(trial.x[0].numel())
    while True:
        rows = trial.recorder.live()
        rows = rows[(won[rows] / held[rows] > 1 + 2.0**-_HALVINGS) & (held[rows] < farthest)]
        if not len(rows):
            return
        x, _ = descend(trial, rows, radius[rows], even(trial, rows))
        margin, _ = ask_margins(trial.recorder, x, rows)
        flips = margin < 0
        trial.space.keep(rows[flips])
        won[rows[flips]], held[rows[~flips]] = radius[rows[flips]], radius[rows[~flips]]
        between = torch.where(held == 0, won / 2, torch.where(won.isinf(), 2 * held, (held * won).sqrt()))
        radius[rows] = between[rows]


Descend = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # samples, weights, push -> x and its new push


def bases(trial: Trial) -> NoReturn:
    """BASES: search for surrogate weights (Cai et al. 2022, https://arxiv.org/abs/2208.03610) within an L2 of `strength`."""
    radius = trial.x.new_full((len(trial.x),), trial.strength)
    search_weights(trial, lambda rows, weights, push: descend(trial, rows, radius[rows], weights, push))


def search_weights(trial: Trial, step: Descend) -> NoReturn:
    """The first query uses equal weights. Then each surrogate in turn gets more weight and less, with one query each, and the
    better weights stay; each perturbation continues from the last.
    """
    rows, turn = trial.recorder.live(), 0
    weights, change = even(trial, rows), _CHANGE / len(trial.ensemble)

    def ask(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        x, after = step(rows, weights, push[rows])
        margin, _ = ask_margins(trial.recorder, x, rows)
        trial.space.keep(rows[margin < 0])
        return margin, after

    push = torch.zeros_like(trial.x)
    push[rows] = ask(rows, weights)[1]
    while True:
        rows = trial.recorder.live()
        tried = [_shifted(weights[rows], turn % len(trial.ensemble), sign * change) for sign in (1, -1)]
        (more, further), (less, back) = (ask(rows, w) for w in tried)
        up = more <= less.nan_to_num(torch.inf)
        weights[rows] = torch.where(up[:, None], tried[0], tried[1])
        push[rows] = torch.where(wide(up, push), further, back)
        turn += 1


def _shifted(weights: Tensor, number: int, change: float) -> Tensor:
    """Weights (m, s) with one changed; none is negative, and they sum to one."""
    moved = weights.clone()
    moved[:, number] = (moved[:, number] + change).clamp(min=0)
    return moved / moved.sum(1, keepdim=True).clamp(min=1e-12)
