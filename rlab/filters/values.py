"""Filters that change each value independently, at any rank: light, tint, contrast, noise and dead pixels."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import torch
from torch import Generator, Tensor

from rlab.filters.base import PICTURES, SIGNALS, Chance, Filter, built_in, built_in_pair, draw, register
from rlab.filters.named import ABOUT

_MAX_PATTERNS = 3  # with at most this many channels, each pattern of signs is a separate filter


@built_in_pair((0.05, 0.1, 0.2, 0.3, 0.5), rowwise=True)
def illuminate(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """Add the same step to every value of x: (b, c, *size)."""
    return x + sign * severity


def channel_shift(x: Tensor, severity: float, generator: Generator, signs: tuple[int, ...]) -> Tensor:
    """Add a step to each channel of x: (b, c, *size), with the sign that `signs` gives."""
    steps = torch.tensor(signs, dtype=x.dtype, device=x.device)
    return x + severity * steps.view(-1, *(1,) * (x.dim() - 2))


@built_in_pair((0.1, 0.2, 0.4, 0.6, 0.8))
def contrast(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """Move each value of x: (b, c, *size) away from the mean of its sample or towards it."""
    mean = x.mean(tuple(range(1, x.dim())), keepdim=True)
    return x + sign * severity * (x - mean)


@cache
def _channel_shift(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"channel_shift{name}",
            apply=partial(channel_shift, signs=signs),
            severities=(0.02, 0.05, 0.1, 0.2, 0.4),
            clip=True,
            rowwise=True,
            about=ABOUT["channel_shift"],
        )
        for name, signs in _patterns(channels)
    )


def _patterns(channels: int) -> list[tuple[str, tuple[int, ...]]]:
    """Few channels: each pattern of signs, as in '+-+'. Many: one channel at a time, counted from 1, as in '+7' and '-7'."""
    marks = {1: "+", -1: "-"}
    if channels <= _MAX_PATTERNS:
        return [("".join(marks[s] for s in signs), signs) for signs in product((1, -1), repeat=channels)]
    return [
        (f"{marks[sign]}{lead + 1}", tuple(sign * (lead == other) for other in range(channels)))
        for lead in range(channels)
        for sign in (1, -1)
    ]


register("channel_shift", _channel_shift)


@built_in((0.02, 0.05, 0.1, 0.2, 0.4), clip=True, additive=True, rowwise=True)
def gaussian_noise(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Add an independent normal draw to each value of x: (b, c, *size)."""
    return x + severity * draw(torch.randn, x.shape, generator, x.dtype)


@built_in((0.01, 0.03, 0.1, 0.2, 0.4), clip=True, rowwise=True)
def salt_and_pepper(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Add or subtract the whole range at random pixels of x: (b, c, *size); clipping brings bounded data back to an end."""
    hit, salt = _each_pixel(x, generator) < severity, _each_pixel(x, generator) < 0.5
    return torch.where(hit, torch.where(salt, x + 1, x - 1), x)


@built_in((0.1, 0.25, 0.5, 0.75, 1.0), ranks=PICTURES, default=1.0, rowwise=True)
def dead_pixel(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Set random pixels of x: (b, c, *size) to zero in all channels."""
    return torch.where(_each_pixel(x, generator) < severity, torch.zeros_like(x), x)


@built_in((0.1, 0.25, 0.5, 0.75, 1.0), ranks=SIGNALS, default=1.0, rowwise=True)
def dropout(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Set random times of x: (b, c, time) to zero in all channels."""
    return dead_pixel(x, severity, generator)


def _each_pixel(x: Tensor, generator: Chance) -> Tensor:
    """Uniform draws (b, 1, *size); the pixels below a weak severity are also below a stronger one."""
    return draw(torch.rand, (len(x), 1, *x.shape[2:]), generator, x.dtype)
