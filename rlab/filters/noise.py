"""Noise: values that are off, pixels that fail."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register


def gaussian_noise(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, *size), each value with its own draw."""
    return x + severity * torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype)


def salt_and_pepper(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, *size); a step by the whole range ends at its edge once cut, and is a spike where there is no range."""
    hit, salt = _each_pixel(x, generator) < severity, _each_pixel(x, generator) < 0.5
    return torch.where(hit, torch.where(salt, x + 1, x - 1), x)


def dead_pixel(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, *size); all channels of a pixel die together."""
    return torch.where(_each_pixel(x, generator) < severity, torch.zeros_like(x), x)


def _each_pixel(x: Tensor, generator: Generator) -> Tensor:
    """(b, 1, *size) in [0, 1). Held against a severity the hits of a weaker one are among those of a stronger one."""
    shape = (len(x), 1, *x.shape[2:])
    return torch.rand(shape, generator=generator, device=generator.device, dtype=x.dtype)


register(
    Filter(
        name="gaussian_noise",
        apply=gaussian_noise,
        severities=(0.02, 0.05, 0.1, 0.2, 0.4),
        clip=True,
        additive=True,
        about="sensor noise; severity is its standard deviation as a share of the range",
    )
)
register(
    Filter(
        name="salt_and_pepper",
        apply=salt_and_pepper,
        severities=(0.01, 0.03, 0.1, 0.2, 0.4),
        clip=True,
        about="bit errors and glitches, pixels thrown to either end of the range; severity is the share of pixels",
    )
)
register(
    Filter(
        name="dead_pixel",
        apply=dead_pixel,
        severities=(0.1, 0.25, 0.5, 0.75, 1.0),
        default=1.0,
        about="pixels or samples that read zero; severity is the share of them that are dead",
    )
)
