"""Distances (b,) between original and perturbed inputs (b, c, *size), in the data's own range."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from rlab.filters.base import snr_db as snr_db


def l0(x0: Tensor, x: Tensor) -> Tensor:
    """Count the points where any channel differs."""
    return (x0 != x).any(1).flatten(1).sum(1).to(torch.float32)


def l2(x0: Tensor, x: Tensor) -> Tensor:
    return (x - x0).flatten(1).norm(dim=1)


def linf(x0: Tensor, x: Tensor) -> Tensor:
    return (x - x0).abs().flatten(1).amax(1)


def mean_absolute(x0: Tensor, x: Tensor) -> Tensor:
    """Mean |x - x0| over all values; times 255 it is the MAP of the video papers."""
    return (x - x0).abs().flatten(1).mean(1)


def frames(x0: Tensor, x: Tensor) -> Tensor:
    """Count the positions along the first axis after the channels (a clip's frames) where anything differs."""
    changed = (x0 != x).any(1)
    return changed.reshape(*changed.shape[:2], -1).any(2).sum(1).to(torch.float32)


def relative_l2(x0: Tensor, x: Tensor) -> Tensor:
    """L2 of the change divided by L2 of the input."""
    return l2(x0, x) / x0.flatten(1).norm(dim=1).clamp(min=1e-12)


def ssim(x0: Tensor, x: Tensor) -> Tensor:
    """Structural similarity of values in [0, 1], with a Gaussian window over all axes after the channels (Wang et al. 2004)."""
    changed = (x0 != x).flatten(1).any(1)
    alike = torch.ones(len(x), dtype=x.dtype, device=x.device)  # exactly 1 for unchanged inputs
    alike[changed] = _ssim(x0[changed], x[changed])
    return alike


def _ssim(x0: Tensor, x: Tensor) -> Tensor:
    c1, c2 = 0.01**2, 0.03**2
    mean0, mean1 = _smooth(x0), _smooth(x)
    var0, var1 = _smooth(x0 * x0) - mean0**2, _smooth(x * x) - mean1**2
    cov = _smooth(x0 * x) - mean0 * mean1
    index = (2 * mean0 * mean1 + c1) * (2 * cov + c2) / ((mean0**2 + mean1**2 + c1) * (var0 + var1 + c2))
    return index.flatten(1).mean(1)


def _smooth(x: Tensor, sigma: float = 1.5, taps: int = 11) -> Tensor:
    """Gaussian mean along each axis after the first two, without padding; short inputs get a shorter window."""
    for axis in range(2, x.dim()):
        count = min(taps, x.shape[axis] - 1 + x.shape[axis] % 2)
        at = torch.arange(count, dtype=x.dtype, device=x.device) - count // 2
        weight = torch.exp(-(at**2) / (2 * sigma**2))
        shares, length = (weight / weight.sum()).tolist(), x.shape[axis] - count + 1
        smooth = shares[0] * x.narrow(axis, 0, length)
        for first in range(1, count):  # a loop: all windows at once would take the memory of eleven clips
            smooth.add_(x.narrow(axis, first, length), alpha=shares[first])
        x = smooth
    return x


Measure = Literal["l2", "map", "l0", "linf"]  # distances that an attack can minimise
MEASURES: dict[Measure, Callable[[Tensor, Tensor], Tensor]] = {"l2": l2, "map": mean_absolute, "l0": l0, "linf": linf}
POWERS: dict[Measure, int] = {"l2": 2, "map": 1, "l0": 0, "linf": 8}  # a sum of |x - x0|^power grows with the distance

# In table order; each is measured at the first flip and after cleanup.
NAMES = ("l0_patches", "l0_values", "l2", "linf", "map255", "relative_l2", "snr_db", "ssim")


def measure(x0: Tensor, x: Tensor, assignment: Tensor, bounds: tuple[float, float]) -> dict[str, Tensor]:
    """Return all distances by name: in [0, 1] for bounded data, else in the data's unit with NaN for MAP and SSIM."""
    bounded = math.isfinite(bounds[1] - bounds[0])
    unit0, unit = ((v - bounds[0]) / (bounds[1] - bounds[0]) if bounded else v for v in (x0, x))
    none = torch.full((len(x),), math.nan)
    return {
        "l0_patches": (assignment != 0).sum(1).to(torch.float32),
        "l0_values": l0(x0, x),
        "l2": l2(unit0, unit),
        "linf": linf(unit0, unit),
        "map255": 255 * mean_absolute(unit0, unit) if bounded else none,
        "relative_l2": relative_l2(x0, x),
        "snr_db": snr_db(x0, x),
        "ssim": ssim(unit0, unit) if bounded else none,
    }


def minimised(distance: Measure, measured: Mapping[str, Tensor], otherwise: Tensor) -> Tensor:
    """(n,): the distance that an attack minimised among those of `measure`; `otherwise` for the MAP of unbounded data."""
    name, factor = {"l2": ("l2", 1), "map": ("map255", 1 / 255), "l0": ("l0_values", 1), "linf": ("linf", 1)}[distance]
    return torch.where(measured[name].isnan(), otherwise, factor * measured[name])
