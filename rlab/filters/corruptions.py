"""The common corruptions of ImageNet-C and CIFAR-10-C (Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261).

Each is a filter whose severity is the published level, 1 to 5: c_fog@3. Images of at most 64 pixels get the parameters of
CIFAR-10-C, larger ones those of ImageNet-C; clips are changed frame by frame. docs/corruptions.md lists the differences to the
published code. Weather and the elastic transform are in weather.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from rlab.filters.base import PICTURES, Chance, Filter, draw, register
from rlab.filters.image import gaussian_taps, jpeg, weighted

PREFIX = "c_"  # several of the plain names are those of other filters
LEVELS = (1, 2, 3, 4, 5)
SMALL = 64  # pixels; up to this side the parameters are those of CIFAR-10-C
_NOTHING = 1e-8  # weights below this are left out
Parameters = tuple[float, ...]
ByLevel = tuple[Parameters, ...]
Change = Callable[[Tensor, Parameters, Chance], Tensor]  # frames (n, c, h, w), a level's parameters -> the same shape


def corruption(about: str, small: ByLevel, large: ByLevel, rowwise: bool = True) -> Callable[[Change], Change]:
    """Register the decorated function as a filter: its name with the prefix, and its parameters by level and size."""

    def add(change: Change) -> Change:
        apply = partial(_each_frame, change=change, small=small, large=large)
        whole = f"{about}, as in ImageNet-C; severity is the published level"
        levels = tuple(map(float, LEVELS))
        name = PREFIX + getattr(change, "__name__", "")
        register(Filter(name, apply, levels, PICTURES, clip=True, about=whole, rowwise=rowwise, levels=True))
        return change

    return add


def _each_frame(
    x: Tensor, severity: float, generator: Chance, *, change: Change, small: ByLevel, large: ByLevel
) -> Tensor:
    """Change every frame of x: (b, c, ..., h, w) with draws of its own."""
    parameters = (small if max(x.shape[-2:]) <= SMALL else large)[round(severity) - 1]
    frames = x.movedim(1, -3)
    flat = frames.flatten(0, -4)
    if not isinstance(generator, Generator):
        generator = tuple(one for one in generator for _ in range(len(flat) // len(x)))
    return change(flat, parameters, generator).reshape(frames.shape).movedim(-3, 1)


def singles(*values: float) -> ByLevel:
    """The parameters of a kind that has one per level."""
    return tuple((value,) for value in values)


def uniform(x: Tensor, chance: Chance, *shape: int) -> Tensor:
    """Draws from [0, 1) of this shape for every row of x."""
    return draw(torch.rand, (len(x), *shape), chance, x.dtype)


def normal(x: Tensor, chance: Chance, *shape: int) -> Tensor:
    return draw(torch.randn, (len(x), *shape), chance, x.dtype)


@corruption("noise of a sensor", singles(0.04, 0.06, 0.08, 0.09, 0.1), singles(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    return x + level[0] * normal(x, chance, *x.shape[1:])


@corruption("noise of few photons", singles(500, 250, 100, 75, 50), singles(60, 25, 12, 5, 3))
def shot_noise(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    light = (x * level[0]).clamp(min=0)
    if isinstance(chance, Generator):
        return torch.poisson(light, generator=chance) / level[0]
    rows = zip(light.split(1), chance, strict=True)
    return torch.cat([torch.poisson(row, generator=one) for row, one in rows]) / level[0]


@corruption("bit errors", singles(0.01, 0.02, 0.03, 0.05, 0.07), singles(0.03, 0.06, 0.09, 0.17, 0.27))
def impulse_noise(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    hit, salt = uniform(x, chance, *x.shape[1:]) <= level[0], uniform(x, chance, *x.shape[1:]) <= 0.5
    return torch.where(hit, salt.to(x), x)


def _repeated(x: Tensor, radius: int, axis: int) -> Tensor:
    """Extend `axis` at both ends: a a | a b c d | d d."""
    index = torch.arange(-radius, x.shape[axis] + radius, device=x.device)
    return x.index_select(axis, index.clamp(0, x.shape[axis] - 1))


def _turned(x: Tensor, radius: int, axis: int) -> Tensor:
    """Extend `axis` at both ends: c b | a b c d | c b."""
    last = x.shape[axis] - 1
    index = torch.arange(-radius, last + 1 + radius, device=x.device) % max(1, 2 * last)
    return x.index_select(axis, torch.where(index <= last, index, 2 * last - index))


def blurred(x: Tensor, sigma: float) -> Tensor:
    """A Gaussian blur of x: (n, c, h, w); values beyond the edges are those at the edge."""
    for axis in (2, 3):
        x = weighted(x, (axis,), gaussian_taps(sigma), _repeated)
    return x


@corruption(
    "a lens out of focus",
    ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """A disk of a radius in pixels, whose rim is smoothed by a Gaussian."""
    radius, rim = level
    reach, near = (8, 1) if radius <= 8 else (math.ceil(radius), 2)
    at = torch.arange(-reach, reach + 1, dtype=torch.float64)
    disk = (at[:, None] ** 2 + at**2 <= radius**2).double()
    disk = disk / disk.sum()
    for axis in (0, 1):
        disk = weighted(disk, (axis,), gaussian_taps(rim, near / rim), _turned)
    places = (disk > _NOTHING).nonzero().tolist()
    taps = [((down - reach, across - reach), float(disk[down, across])) for down, across in places]
    return weighted(x, (2, 3), taps, _turned)


@corruption(
    "frosted glass",
    ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """Pixels take the place of others nearby, between two blurs."""
    sigma, reach, times = level
    x = blurred(x, sigma)
    for _ in range(int(times)):
        x = _stirred(x, int(reach), chance)
    return blurred(x, sigma)


def _stirred(x: Tensor, reach: int, chance: Chance) -> Tensor:
    """From the last pixel to the first, copy a pixel at most `reach` away; one that comes later may copy the copy."""
    n, channels, height, width = x.shape
    count, steps = height * width, 2 * reach * draw(torch.rand, (n, 2, height, width), chance, torch.float32)
    down, across = (steps.floor().long() - reach).unbind(1)
    row, column = torch.arange(height, device=x.device)[:, None], torch.arange(width, device=x.device)
    inside = (row > reach) & (row <= height - reach) & (column > reach) & (column <= width - reach)
    here = row * width + column
    there = here + torch.where(inside, down * width + across, 0)
    # Below `count`: the pixel after it was changed; from `count` on: the pixel as it was.
    after = torch.where(there > here, there, there + count).flatten(1)
    chain = torch.cat([after, torch.arange(count, 2 * count, device=x.device).expand(n, count)], 1)
    while bool((chain[:, :count] < count).any()):
        chain = chain.gather(1, chain)
    source = (chain[:, :count] - count)[:, None].expand(n, channels, count)
    return x.flatten(2).gather(2, source).view_as(x)


def smeared(x: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Smear each of x: (n, c, h, w) in its direction (n,), with the weights of one half of a Gaussian."""
    n, channels, height, width = x.shape
    weights = [math.exp(-0.5 * (at / sigma) ** 2) for at in range(2 * radius + 1)]
    turns = [(math.sin(angle), math.cos(angle)) for angle in angles.tolist()]
    out, flat = torch.zeros_like(x), x.flatten(2)
    row, column = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    for at, weight in enumerate(weights):
        steps = torch.tensor([[math.ceil(at * part - 0.5) for part in turn] for turn in turns], device=x.device)
        rows, columns = (row + steps[:, :1]).clamp(0, height - 1), (column + steps[:, 1:]).clamp(0, width - 1)
        index = (rows[:, :, None] * width + columns[:, None]).view(n, 1, -1).expand(n, channels, -1)
        out += weight / sum(weights) * flat.gather(2, index).view_as(x)
    return out


@corruption(
    "a moving camera",
    ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    radius, sigma = level
    return smeared(x, int(radius), sigma, (uniform(x, chance) - 0.5) * (math.pi / 2))


def zoomed(x: Tensor, factor: float) -> Tensor:
    """The middle of x: (n, c, h, w), enlarged; a pixel more than x where the factor does not divide its size."""
    sides = [math.ceil(side / factor) for side in x.shape[2:]]
    top, left = ((whole - side) // 2 for whole, side in zip(x.shape[2:], sides, strict=True))
    middle = x[:, :, top : top + sides[0], left : left + sides[1]]
    return F.interpolate(middle, [round(side * factor) for side in sides], mode="bilinear", align_corners=True)


@corruption(
    "a moving zoom lens",
    ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
)
def zoom_blur(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    factors, total = np.arange(1, *level).tolist(), x.clone()
    for factor in factors:
        total += zoomed(x, factor)[:, :, : x.shape[2], : x.shape[3]]
    return total / (len(factors) + 1)


@corruption("more light", singles(0.05, 0.1, 0.15, 0.2, 0.3), singles(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """The V of HSV grows; hue and saturation stay, so all channels are scaled alike."""
    value = x.amax(1, keepdim=True)
    brighter = (value + level[0]).clamp(max=1)
    return torch.where(value > 0, x * brighter / value.clamp(min=1e-6), brighter)


@corruption("haze", singles(0.75, 0.5, 0.4, 0.3, 0.15), singles(0.4, 0.3, 0.2, 0.1, 0.05), rowwise=False)
def contrast(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * level[0] + mean


@corruption("low resolution", singles(0.95, 0.9, 0.85, 0.75, 0.65), singles(0.6, 0.5, 0.4, 0.3, 0.25), rowwise=False)
def pixelate(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    down, across = (_blocks(side, max(1, int(side * level[0]))).to(x) for side in x.shape[2:])
    return down @ x @ across.T


def _blocks(side: int, few: int) -> Tensor:
    """(side, side): the mean of a box for each of `few` pixels, shown at the pixels nearest to it."""
    middle = (torch.arange(few, dtype=torch.float64)[:, None] + 0.5) * side / few
    away = (torch.arange(side) + 0.5 - middle) * few / side
    box = ((away > -0.5) & (away <= 0.5)).double()
    return (box / box.sum(1, keepdim=True))[(torch.arange(side) + 0.5).mul(few / side).long()]


@corruption("JPEG compression", singles(80, 65, 58, 50, 40), singles(25, 18, 15, 10, 7))
def jpeg_compression(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    return jpeg(x, 100 - level[0], chance)
