"""What electrodes and recorders do to a signal: an electrode that moves, a wrong gain, too much smoothing."""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register
from rlab.filters.blur import gaussian_blur
from rlab.filters.signal import RATE

_SIGNALS = frozenset({1})
_MOVES = 1.0  # a second, at least one
_RISE = 0.02  # seconds
_FADE = (0.1, 0.4)  # seconds


def electrode_motion(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """x: (b, c, time) plus jerks that fade; they come at one time in all leads, and in each with its own size."""
    count = max(1, round(_MOVES * x.shape[-1] / rate))
    start = _uniform(x, (len(x), 1, count), generator) * 0.8 * x.shape[-1] / rate
    fade = _FADE[0] + (_FADE[1] - _FADE[0]) * _uniform(x, (len(x), 1, count), generator)
    size = 2 * _uniform(x, (*x.shape[:2], count), generator) - 1
    time = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) / rate
    jerks = torch.zeros_like(x)
    for event in range(count):
        since = (time - start[..., event, None]).clamp(min=0)
        jerks += size[..., event, None] * (1 - torch.exp(-since / _RISE)) * torch.exp(-since / fade[..., event, None])
    highest = jerks.abs().flatten(1).amax(1).clamp(min=1e-6).view(-1, 1, 1)
    return x + severity * jerks / highest


def _uniform(x: Tensor, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=x.dtype)


def amplitude_scaling(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """x: (b, c, time), each lead larger or smaller about its median, so that the baseline stays."""
    middle = x.median(-1, keepdim=True).values
    return x + sign * severity * (x - middle)


def smoothing(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """x: (b, c, time) under a Gaussian of `severity` milliseconds."""
    return gaussian_blur(x, severity / 1000 * rate, generator)


@cache
def _amplitude(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"amplitude_scaling{mark}",
            apply=partial(amplitude_scaling, sign=sign),
            severities=(0.1, 0.2, 0.3, 0.5, 0.7),
            ranks=_SIGNALS,
            clip=True,
            about=f"{what}, leads scaled about their median; severity is the share by which they {change}",
        )
        for mark, sign, what, change in (
            ("+", 1, "gain set too high", "grow"),
            ("-", -1, "poor contact, gain set too low", "shrink"),
        )
    )


register(
    Filter(
        name="electrode_motion",
        apply=electrode_motion,
        severities=(0.05, 0.1, 0.2, 0.4, 0.8),
        ranks=_SIGNALS,
        clip=True,
        additive=True,
        rated=True,
        about="an electrode that moves, jerks that fade in 0.1 to 0.4 s; severity is the largest, also in mV or dB of SNR",
    )
)
register("amplitude_scaling", _amplitude)
register(
    Filter(
        name="smoothing",
        apply=smoothing,
        severities=(2.0, 4.0, 8.0, 16.0, 32.0),
        ranks=_SIGNALS,
        clip=True,
        unit="ms",
        rated=True,
        about="a recorder that smooths; severity is a Gaussian's deviation in ms (8 ms halve the power at 17 Hz)",
    )
)
