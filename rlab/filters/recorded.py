"""Noise that was recorded: a filter adds a random excerpt of it, scaled to the severity."""

from __future__ import annotations

from functools import partial

import torch
from torch import Generator, Tensor

from rlab.errors import OptionError
from rlab.filters.base import SIGNALS, Filter


def recorded_filter(name: str, noise: Tensor) -> Filter:
    """A filter that adds excerpts of `noise` (channels, time), which has the rate of the data."""
    about = "recorded noise; severity is its RMS, also in mV or dB of SNR"
    return Filter(
        name, partial(add_excerpt, noise=noise), (0.02, 0.05, 0.1, 0.2, 0.4), SIGNALS, clip=True, about=about, additive=True
    )  # fmt: skip


def add_excerpt(x: Tensor, severity: float, generator: Generator, noise: Tensor) -> Tensor:
    """Add an excerpt with an RMS of `severity` to x: (b, c, time), from the same time in all leads, each from a random channel."""
    length, spare = x.shape[-1], noise.shape[-1] - x.shape[-1]
    if spare < 0:
        raise OptionError(f"the recorded noise has {noise.shape[-1]} values for signals of {length}: record more of it")
    start = torch.randint(spare + 1, (len(x), 1, 1), generator=generator, device=generator.device)
    channel = torch.randint(len(noise), (*x.shape[:2], 1), generator=generator, device=generator.device)
    sign = torch.randint(2, (*x.shape[:2], 1), generator=generator, device=generator.device) * 2 - 1
    chosen = noise.to(x)[channel, start + torch.arange(length, device=x.device)]
    pattern = sign * (chosen - chosen.mean(-1, keepdim=True))
    loudness = pattern.square().mean((1, 2), keepdim=True).sqrt()
    return x + severity * pattern / loudness.clamp(min=1e-12)
