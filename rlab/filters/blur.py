"""Blur: an optic out of focus, a camera that moved. Edges are mirrored, so that a flat input stays as it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register

_REACH = 4  # standard deviations after which a Gaussian kernel ends


def gaussian_blur(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, *size), blurred along the last two axes, or the only one: a clip's frames are not mixed."""
    kernel = _gaussian(severity)
    for axis in range(max(2, x.dim() - 2), x.dim()):
        x = _weighted(x, (axis,), (((at,), weight) for at, weight in kernel))
    return x


def _gaussian(sigma: float) -> list[tuple[int, float]]:
    """Pairs (distance, weight) that sum to 1."""
    radius = int(_REACH * sigma + 0.5)
    weights = [math.exp(-0.5 * (at / sigma) ** 2) for at in range(-radius, radius + 1)]
    return [(at - radius, weight / sum(weights)) for at, weight in enumerate(weights)]


def motion_blur(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, ..., h, w), smeared along a line of `severity` pixels; one direction for the whole batch."""
    angle = math.pi * torch.rand((), generator=generator, device=generator.device).item()
    return _weighted(x, (x.dim() - 2, x.dim() - 1), _line(severity, angle).items())


def _line(length: float, angle: float) -> dict[tuple[int, int], float]:
    """Weights that sum to 1, by (row, column) offset: points along the line, each shared by its four nearest pixels."""
    points = 2 * math.ceil(length) + 1
    weights: dict[tuple[int, int], float] = defaultdict(float)
    for index in range(points):
        along = (index / (points - 1) - 0.5) * max(length - 1, 0)
        row, column = along * math.sin(angle), along * math.cos(angle)
        for near_row in (math.floor(row), math.floor(row) + 1):
            for near_column in (math.floor(column), math.floor(column) + 1):
                share = (1 - abs(row - near_row)) * (1 - abs(column - near_column))
                weights[near_row, near_column] += share / points
    return weights


def _weighted(x: Tensor, axes: tuple[int, ...], taps: Iterable[tuple[tuple[int, ...], float]]) -> Tensor:
    """The sum of x: (b, c, *size) moved by each tap's offset along `axes`, times the tap's weight."""
    taps = [(offset, weight) for offset, weight in taps if weight]
    radius = max(abs(step) for offset, _ in taps for step in offset)
    wide, out = x, torch.zeros_like(x)
    for axis in axes:
        wide = mirrored(wide, radius, axis)
    for offset, weight in taps:
        moved = wide
        for axis, step in zip(axes, offset, strict=True):
            moved = moved.narrow(axis, radius + step, x.shape[axis])
        out.add_(moved, alpha=weight)
    return out


def mirrored(x: Tensor, radius: int, axis: int) -> Tensor:
    """`axis` grown by `radius` at both ends, d c b a | a b c d | d c b a, again and again where x is shorter."""
    length = x.shape[axis]
    index = torch.arange(-radius, length + radius, device=x.device) % (2 * length)
    return x.index_select(axis, torch.where(index < length, index, 2 * length - 1 - index))


register(
    Filter(
        name="gaussian_blur",
        apply=gaussian_blur,
        severities=(0.5, 1.0, 2.0, 4.0, 8.0),
        clip=True,
        about="an optic out of focus, a smoothed signal; severity is the standard deviation in pixels or samples",
    )
)
register(
    Filter(
        name="motion_blur",
        apply=motion_blur,
        severities=(2.0, 3.0, 5.0, 9.0, 15.0),
        ranks=frozenset({2, 3}),
        clip=True,
        about="a camera that moved, in a random direction; severity is the way it went in pixels",
    )
)
