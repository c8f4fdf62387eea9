"""Attacks without surrogates: SimBA and Square on images, by scores; HopSkipJump, by labels alone."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from benchmarks.peers.trial import Trial, ask_margins, still_open, walk
from rlab.comparison.recorder import VALUES
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.basis import cosines
from rlab.policies.square import share_at

_BLOCKS = (0.25, 0.5, 1.0)  # sides of successive low-frequency blocks, as shares of the image's sides
_SHARE = 0.1  # share of the image that Square's first windows cover
_TILES = 5  # per side in Square's first perturbation
_FALL = 0.8  # next radius, as a share of the last flip's L2
_BLEND = 1e-3  # precision of the first flip between the original and noise
_FIRST, _MOST = 100, 10_000  # probes for the first gradient estimate, and at most
_PROBE = 0.1  # length of the first probes
_TOGETHER = 50  # probes per call


def simba_dct(trial: Trial) -> NoReturn:
    """SimBA in the cosine basis (Guo et al. 2019, https://arxiv.org/abs/1905.07121).

    Tries each basis vector once, low frequencies first and in random order within a block; then starts again.
    """
    channels, *size = trial.x.shape[1:]
    matrices = [cosines(length, trial.x.device).to(trial.x) for length in size]
    every = torch.arange(len(trial.x), device=trial.x.device)
    draw = trial.uniform(every, 0, trial.x[0].numel()).view(len(every), channels, *size)
    order = (draw + _block(size, draw.device)).flatten(1).argsort(1)

    def direct(samples: Tensor, rival: Tensor, helped: Tensor, round_: int) -> Tensor:
        vector = torch.zeros_like(trial.x[samples])
        vector.flatten(1).scatter_(1, order[samples, round_ % order.shape[1]][:, None], 1.0)
        return matrices[0].T @ vector @ matrices[1]

    walk(trial, direct)


def _block(size: list[int], device: torch.device) -> Tensor:
    """(h, w): the block of each frequency."""
    shares = [torch.arange(length, device=device) / length for length in size]
    farthest = torch.maximum(shares[0][:, None], shares[1])
    return sum((farthest >= side).float() for side in _BLOCKS[:-1]) + torch.zeros_like(farthest)


def square_min(trial: Trial) -> NoReturn:
    """Square attack for L2 (Andriushchenko et al. 2020, https://arxiv.org/abs/1912.00049) with a falling radius.

    The radius starts at `strength`. Each flip sets it to four fifths of the flip's L2, and the search continues from the
    perturbation shrunk to that radius. Windows shrink on the paper's schedule over the whole budget.
    """
    recorder, x0 = trial.recorder, trial.x
    rows, step = recorder.live(), 1
    radius = x0.new_full((len(x0),), trial.strength)
    x = x0.clone()
    x[rows] = _scaled(x0[rows], _tiles(trial, rows), radius[rows])
    best, _ = ask_margins(recorder, x[rows], rows)
    while True:
        rows = recorder.live()
        flipped = best[rows] < 0
        won = rows[flipped]
        radius[won] = _FALL * lengths(x[won] - x0[won])
        delta = x[rows] - x0[rows]
        delta = torch.where(wide(flipped, delta), delta, _moved(trial, rows, delta, radius[rows], step))
        tried = _scaled(x0[rows], delta, radius[rows])
        margin, _ = ask_margins(recorder, tried, rows)
        taken = flipped | (margin < best[rows])
        x[rows[taken]], best[rows[taken]] = tried[taken], margin[taken]
        step += 1


def _scaled(x0: Tensor, delta: Tensor, radius: Tensor) -> Tensor:
    return (x0 + unit(delta) * wide(radius, x0)).clamp(0, 1)


def _tiles(trial: Trial, samples: Tensor) -> Tensor:
    """(m, c, h, w): the paper's pattern in each tile, with a random sign per channel."""
    n, channels, height, width = trial.x[samples].shape
    side = max(1, min(height, width) // _TILES)
    down, across = min(_TILES, height // side), min(_TILES, width // side)
    sign = trial.uniform(samples, 0, channels * down * across).view(n, channels, down, across).round() * 2 - 1
    pattern = torch.kron(sign, bump(side).to(trial.x))
    out = torch.zeros_like(trial.x[samples])
    top, left = (height - side * down) // 2, (width - side * across) // 2
    out[:, :, top : top + side * down, left : left + side * across] = pattern
    return out


def bump(side: int) -> Tensor:
    """(side, side) of length one: a hill of boxes in one half, its negative in the other."""
    half = side // 2
    whole = torch.cat([_hill(side, half), -_hill(side, side - half)], 1)
    return whole / whole.norm().clamp(min=1e-12)


def _hill(height: int, width: int) -> Tensor:
    """(height, width): nested boxes around the centre, the k-th of height 1 / k²."""
    rows, columns = (torch.arange(length) - length // 2 for length in (height, width))
    away = torch.maximum(rows.abs()[:, None], columns.abs()) if width else torch.zeros(height, 0, dtype=torch.int64)
    steps = 1 / torch.arange(1, max(height, width) // 2 + 2).square()
    hill = steps.flip(0).cumsum(0).flip(0)[away]
    return hill / hill.norm().clamp(min=1e-12)


def _moved(trial: Trial, samples: Tensor, delta: Tensor, radius: Tensor, step: int) -> Tensor:
    """Move the mass of one window of delta (m, c, h, w) to another, and add the pattern there."""
    n, channels, height, width = delta.shape
    share = float(share_at(_SHARE, torch.tensor(step), trial.recorder.budget))
    side = max(3, round(math.sqrt(share * height * width)))
    side = min(side + 1 - side % 2, height, width)
    draw = trial.uniform(samples, step, 5 + channels)
    to, source = (_window(draw[:, at : at + 2], side, height, width) for at in (0, 2))
    sign = (draw[:, 5:] >= 0.5).float() * 2 - 1
    pattern = bump(side).to(delta)
    pattern = torch.where(draw[:, 4].view(-1, 1, 1) < 0.5, pattern, pattern.T)[:, None] * sign[..., None, None]
    rows, channel = torch.arange(n, device=delta.device).view(-1, 1, 1, 1), torch.arange(channels).view(-1, 1, 1)
    here = (rows, channel.to(delta.device), *to)
    old = delta[here]
    new = pattern + old / old.flatten(2).norm(dim=2).clamp(min=1e-10)[..., None, None]
    emptied = delta.clone()
    emptied[(rows, channel.to(delta.device), *source)] = 0
    emptied[here] = 0
    held = delta.flatten(2).square().sum(2) - emptied.flatten(2).square().sum(2)  # in both windows, per channel
    spare = (radius.square() - delta.flatten(1).square().sum(1)).clamp(min=0)[:, None] / channels
    length = (held.clamp(min=0) + spare).sqrt()
    emptied[here] = new / new.flatten(2).norm(dim=2).clamp(min=1e-10)[..., None, None] * length[..., None, None]
    return emptied


def _window(draw: Tensor, side: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """draw (m, 2) -> the rows (m, 1, side, 1) and columns (m, 1, 1, side) of a window."""
    along = torch.arange(side, device=draw.device)
    top = (draw[:, 0] * (height - side + 1)).long().view(-1, 1, 1, 1)
    left = (draw[:, 1] * (width - side + 1)).long().view(-1, 1, 1, 1)
    return top + along.view(-1, 1), left + along


def hop_skip_jump(trial: Trial) -> NoReturn:
    """HopSkipJumpAttack for L2 with the paper's constants (Chen et al. 2020, https://arxiv.org/abs/1904.02144).

    It blends noise that flips with the original. Each round estimates the gradient from random probes at the boundary, steps
    along it (halving the step until it flips), and bisects towards the original.
    """
    x0, values = trial.x, trial.x[0].numel()
    nearest = values**-1.5
    x = bisected(trial, x0, flipping_noise(trial), _BLEND)
    x, round_ = bisected(trial, x0, x, nearest), 1
    while True:
        trial.recorder.live()
        distance = lengths(x - x0)
        reach = torch.full_like(distance, _PROBE) if round_ == 1 else math.sqrt(values) * nearest * distance
        update = _gradient(trial, x, reach, min(int(_FIRST * math.sqrt(round_)), _MOST), round_)
        stride, tried, left = distance / math.sqrt(round_), x.clone(), trial.recorder.live()
        while len(left):
            tried[left] = (x[left] + wide(stride[left], x) * update[left]).clamp(0, 1)
            won = flips(trial, tried[left], left)
            stride[left[~won]] /= 2
            left = still_open(trial.recorder, left[~won])
        x, round_ = bisected(trial, x0, tried, nearest), round_ + 1


def flips(trial: Trial, x: Tensor, samples: Tensor) -> Tensor:
    """(m,) bool; False for rows beyond the budget."""
    return ask_margins(trial.recorder, x, samples)[0] < 0


def flipping_noise(trial: Trial) -> Tensor:
    """Uniform noise (n, c, *size), drawn until it flips."""
    x, left, step = trial.x.clone(), trial.recorder.live(), 0
    while len(left):
        drawn = trial.uniform(left, step, trial.x[0].numel()).view(-1, *trial.x.shape[1:]).to(trial.x)
        won = flips(trial, drawn, left)
        x[left[won]] = drawn[won]
        left, step = still_open(trial.recorder, left[~won]), step + 1
    return x


def bisected(trial: Trial, x0: Tensor, flip: Tensor, nearest: float) -> Tensor:
    """Bisect from flips (n, c, *size) towards the originals until within the share `nearest` of the boundary."""
    high, low = x0.new_ones(len(x0)), x0.new_zeros(len(x0))
    while float((high - low).amax()) > nearest:
        every, middle = trial.recorder.live(), (low + high) / 2
        won = torch.zeros_like(high, dtype=torch.bool)
        won[every] = flips(trial, torch.lerp(x0, flip, wide(middle, x0))[every], every)
        high, low = torch.where(won, middle, high), torch.where(won, low, middle)
    return torch.lerp(x0, flip, wide(high, x0))


def _gradient(trial: Trial, x: Tensor, reach: Tensor, count: int, round_: int) -> Tensor:
    """Unit directions (n, c, *size) towards flips, from the signs of `count` probes of length `reach` (n,)."""
    live = trial.recorder.live()
    at, far = x[live], wide(reach[live], x)
    total, spread, signs = torch.zeros_like(at), torch.zeros_like(at), torch.zeros_like(reach[live])
    many = max(1, min(_TOGETHER, VALUES // max(1, at.numel())))
    for first in range(0, count, many):
        numbers = range(first, min(first + many, count))
        step = torch.stack([unit(trial.normal(live, round_ * _MOST + number)) for number in numbers])
        probe = (at + far * step).clamp(0, 1)
        step = (probe - at) / far
        won = flips(trial, probe.flatten(0, 1), live.repeat(len(numbers))).view(len(numbers), -1)
        sign = torch.where(won, 1.0, -1.0)
        total, spread = total + (wide(sign, step) * step).sum(0), spread + step.sum(0)
        signs = signs + sign.sum(0) / count
    some = signs.abs() < 1  # equal signs carry no more than their mean
    out = torch.zeros_like(x)
    out[live] = unit(torch.where(wide(some, at), total - wide(signs, at) * spread, total))
    return out
