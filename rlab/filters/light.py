"""Light: brighter, darker, tinted, harsher or flatter."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register

_MAX_PATTERNS = 3  # channels up to which every pattern of signs is a filter of its own


def illuminate(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """x: (b, c, *size), the same step for every value."""
    return x + sign * severity


def channel_shift(x: Tensor, severity: float, generator: Generator, signs: tuple[int, ...]) -> Tensor:
    """x: (b, c, *size), a step of its own sign for each of the c channels."""
    steps = torch.tensor(signs, dtype=x.dtype, device=x.device)
    return x + severity * steps.view(-1, *(1,) * (x.dim() - 2))


def contrast(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """x: (b, c, *size), stretched away from the sample's mean or drawn to it."""
    mean = x.mean(tuple(range(1, x.dim())), keepdim=True)
    return x + sign * severity * (x - mean)


@cache
def _illuminate(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"illuminate{mark}",
            apply=partial(illuminate, sign=sign),
            severities=(0.05, 0.1, 0.2, 0.3, 0.5),
            clip=True,
            about=f"{change} light, an offset in a signal; severity is the step as a share of the range",
        )
        for mark, sign, change in (("+", 1, "more"), ("-", -1, "less"))
    )


@cache
def _channel_shift(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"channel_shift{name}",
            apply=partial(channel_shift, signs=signs),
            severities=(0.02, 0.05, 0.1, 0.2, 0.4),
            clip=True,
            about="tinted light, a lead with an offset; severity is the step of each channel as a share of the range",
        )
        for name, signs in _patterns(channels)
    )


def _patterns(channels: int) -> list[tuple[str, tuple[int, ...]]]:
    """Few channels: every pattern of signs, as '+-+'. Many: one channel at a time, counted from 1, as '+7' and '-7'."""
    marks = {1: "+", -1: "-"}
    if channels <= _MAX_PATTERNS:
        return [("".join(marks[s] for s in signs), signs) for signs in product((1, -1), repeat=channels)]
    return [
        (f"{marks[sign]}{lead + 1}", tuple(sign * (lead == other) for other in range(channels)))
        for lead in range(channels)
        for sign in (1, -1)
    ]


@cache
def _contrast(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"contrast{mark}",
            apply=partial(contrast, sign=sign),
            severities=(0.1, 0.2, 0.4, 0.6, 0.8),
            clip=True,
            about=f"{change}; severity is the share by which distances from the sample's mean change",
        )
        for mark, sign, change in (("+", 1, "harsh light, gain too high"), ("-", -1, "haze, gain too low"))
    )


register("illuminate", _illuminate)
register("channel_shift", _channel_shift)
register("contrast", _contrast)
