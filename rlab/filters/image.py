"""Distortions of images and clips by optics, cameras, storage and networks. Blurs mirror the edges, so flat inputs stay flat."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Generator, Tensor

from rlab.filters.base import CLIPS, PICTURES, Chance, built_in

Pixels = NDArray[np.uint8]
Extend = Callable[[Tensor, int, int], Tensor]  # (x, radius, axis) -> x, longer by `radius` at both ends of `axis`


@built_in((0.5, 1.0, 2.0, 4.0, 8.0), clip=True, rowwise=True)
def gaussian_blur(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Blur x: (b, c, *size) along its last two axes (signals: one), so that the frames of a clip do not mix."""
    for axis in range(max(2, x.dim() - 2), x.dim()):
        x = weighted(x, (axis,), gaussian_taps(severity))
    return x


def gaussian_taps(sigma: float, reach: float = 4) -> list[tuple[tuple[int], float]]:
    """Pairs (offset, weight) along one axis, up to `reach` standard deviations away; the weights sum to 1."""
    radius = int(reach * sigma + 0.5)
    weights = [math.exp(-0.5 * (at / sigma) ** 2) for at in range(-radius, radius + 1)]
    return [((at - radius,), weight / sum(weights)) for at, weight in enumerate(weights)]


@built_in((2.0, 3.0, 5.0, 9.0, 15.0), ranks=PICTURES, clip=True)
def motion_blur(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Smear x: (b, c, ..., h, w) along a line of `severity` pixels, in one direction for the whole batch."""
    angle = math.pi * torch.rand((), generator=generator, device=generator.device).item()
    return weighted(x, (x.dim() - 2, x.dim() - 1), line_weights(severity, angle).items())


def line_weights(length: float, angle: float) -> dict[tuple[int, int], float]:
    """Weights by (row, column) offset, which sum to 1: points along the line, split between the four nearest pixels."""
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


def mirrored(x: Tensor, radius: int, axis: int) -> Tensor:
    """Extend `axis` by `radius` at both ends: d c b a | a b c d | d c b a, repeated if x is shorter than `radius`."""
    length = x.shape[axis]
    index = torch.arange(-radius, length + radius, device=x.device) % (2 * length)
    return x.index_select(axis, torch.where(index < length, index, 2 * length - 1 - index))


def weighted(
    x: Tensor, axes: tuple[int, ...], taps: Iterable[tuple[tuple[int, ...], float]], extend: Extend = mirrored
) -> Tensor:
    """Sum of copies of x: (b, c, *size), shifted along `axes` by the offset of each tap and multiplied by its weight."""
    taps = [(offset, weight) for offset, weight in taps if weight]
    radius = max(abs(step) for offset, _ in taps for step in offset)
    wide, out = x, torch.zeros_like(x)
    for axis in axes:
        wide = extend(wide, radius, axis)
    for offset, weight in taps:
        moved = wide
        for axis, step in zip(axes, offset, strict=True):
            moved = moved.narrow(axis, radius + step, x.shape[axis])
        out.add_(moved, alpha=weight)
    return out


@built_in((2.0, 4.0, 8.0, 16.0, 32.0), ranks=PICTURES, clip=True, default=4.0)
def pixelate(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Replace each block of pixels of x: (b, c, ..., h, w) by its mean."""
    height, width = x.shape[-2:]
    down, across = (min(max(1, round(severity)), length) for length in (height, width))
    means = F.avg_pool2d(x.flatten(0, -3)[:, None], (down, across), ceil_mode=True)
    blocks = means.repeat_interleave(down, -2).repeat_interleave(across, -1)
    return blocks[..., :height, :width].reshape(x.shape)


@built_in((30.0, 50.0, 70.0, 85.0, 95.0), ranks=PICTURES, clip=True)
def jpeg(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Encode and decode each frame of x: (b, c, ..., h, w); values beyond 0..1 widen the encoded range."""
    each = (len(x), *(1,) * (x.dim() - 1))
    low = x.flatten(1).amin(1).clamp(max=0).view(each)
    span = x.flatten(1).amax(1).clamp(min=1).view(each) - low
    last = ((x - low) / span * 255 + 0.5).to(torch.uint8).movedim(1, -1)
    coded = _coded(last.flatten(0, -4).cpu().numpy(), min(100, max(1, round(100 - severity))))
    back = torch.from_numpy(coded).view(last.shape).movedim(-1, 1).to(x)
    return back / 255 * span + low


def _coded(frames: Pixels, quality: int) -> Pixels:
    """(n, h, w, c) uint8 -> the same shape; three channels are encoded as colours, other numbers one by one."""
    if frames.shape[-1] == 3:
        return np.stack([_round_trip(frame, quality) for frame in frames])
    planes = [[_round_trip(plane, quality) for plane in np.moveaxis(frame, -1, 0)] for frame in frames]
    return np.moveaxis(np.array(planes), 1, -1)


def _round_trip(pixels: Pixels, quality: int) -> Pixels:
    """(h, w, 3) or (h, w) uint8 -> the same shape."""
    stream = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


@built_in((2.0, 4.0, 8.0, 16.0, 32.0), ranks=CLIPS)
def frozen_frame(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Repeat every `severity`-th frame of x: (b, c, t, h, w) in place of the frames that follow it."""
    hold = max(1, round(severity))
    frames = torch.arange(x.shape[2], device=x.device)
    return x.index_select(2, frames // hold * hold)


@built_in((0.05, 0.1, 0.2, 0.3, 0.5), ranks=CLIPS, clip=True)
def flicker(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Make each frame of x: (b, c, t, h, w) brighter or darker by up to `severity`."""
    steps = torch.rand((len(x), x.shape[2]), generator=generator, device=generator.device, dtype=x.dtype) * 2 - 1
    return x + severity * steps[:, None, :, None, None]
