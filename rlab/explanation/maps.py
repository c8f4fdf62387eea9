"""Maps of any rank: from patches to points, scaled to [0, 1], thresholded to masks, and spread over what looks alike.

Spreading leads from the most important part of an object to its extent. Also here: what replaces a hidden part of an input,
its mean or a strong filter (by default a wide blur).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.grid import PatchGrid
from rlab.core.vectors import wide
from rlab.data.kinds import kind_of
from rlab.errors import OptionError
from rlab.filters.palette import Palette, unit_scale

POINTS = 3136  # approximate maximum of the coarse copy that is spread
LIKENESS, DISTANCE = 0.05, 0.2  # of points to spread over: shares of the data's range and of each axis
SMOOTH, EDGE, CG_STEPS = 20.0, 0.05, 60
BLUR, LEAST_BLUR = 16, 4.0  # the blur's standard deviation is the longest axis / BLUR, and at least LEAST_BLUR points
LINEAR = ("linear", "bilinear", "trilinear")  # torch's names, by rank, from 1


@dataclass(frozen=True)
class Cells:
    """Default resolution for data of one rank."""

    queries: int
    sets: tuple[int, ...]  # patches per axis in the hidden sets, coarse to fine
    places: int  # per axis, for the effects
    regions: int  # per axis, for the statements
    small: int = 0  # up to this length, queries decide the mask's size instead of similarity


BY_RANK = (
    Cells(500, (8, 16, 32), 128, 13),
    Cells(700, (7, 10, 14), 28, 4, small=64),
    Cells(700, (3, 4, 6), 9, 2),
)  # by rank, from 1


def to_unit(maps: Tensor) -> Tensor:
    """Scale each map (n, *size) to [0, 1]; a flat map becomes zeros."""
    low, high = (wide(end, maps) for end in (maps.flatten(1).amin(1), maps.flatten(1).amax(1)))
    return (maps - low) / torch.where(high > low, high - low, 1.0)


def resize(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    """(n, *coarse) -> (n, *size), by linear interpolation."""
    return interpolate(maps[:, None], size=size, mode=LINEAR[len(size) - 1], align_corners=False)[:, 0]


def raise_patches(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, p) -> (n, *size), by linear interpolation between patch centres."""
    whole = tuple(count * side for count, side in zip(grid.shape, grid.patch, strict=True))
    full = resize(values.reshape(-1, *grid.shape), whole)
    return full[(slice(None), *(slice(0, length) for length in grid.size))]


def even_grid(size: tuple[int, ...], along: int) -> PatchGrid:
    """A grid with about `along` patches per axis, fewer on a shorter axis."""
    return PatchGrid(size, tuple(-(-length // min(along, length)) for length in size))


def otsu(maps: Tensor) -> Tensor:
    """(n, *size) -> (n,): the exact threshold that best separates each map's values (Otsu 1979)."""
    values = maps.flatten(1).double().sort(dim=1).values
    count = values.shape[1]
    below = torch.arange(1, count, device=maps.device)
    sums = values.cumsum(1)
    gap = (sums[:, -1:] - sums[:, :-1]) / (count - below) - sums[:, :-1] / below
    at = (below * (count - below) * gap**2).argmax(1, keepdim=True)
    return ((values.gather(1, at) + values.gather(1, at + 1)) / 2).squeeze(1).to(maps.dtype)


def ranks(maps: Tensor) -> Tensor:
    """(n, *size) -> (n, *size): 0 for the highest point; the earlier point wins ties."""
    return maps.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(dim=1).view_as(maps)


def top_share(maps: Tensor, share: float) -> Tensor:
    """(n, *size) -> bool: the highest `share` of the points."""
    return ranks(maps) < round(share * maps[0].numel())


def threshold(maps: Tensor, rule: str = "otsu") -> Tensor:
    """(n, *size) -> bool, by 'otsu' or by 'share:0.2', the highest fifth of the points."""
    name, _, value = rule.partition(":")
    if name == "otsu" and not value:
        return maps > wide(otsu(maps), maps)
    try:
        share = float(value) if name == "share" else -1.0
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise OptionError(f"expected a rule like 'otsu' or 'share:0.2' (a share between 0 and 1), got {rule!r}")
    return top_share(maps, share)


def spread(maps: Tensor, x0: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Average maps (n, *size) over points of x0 (n, c, *size) by likeness and distance, then smooth them up to edges."""
    shift, scale = unit_scale(x0, bounds)
    grid = even_grid(tuple(maps.shape[1:]), round(POINTS ** (1 / len(maps.shape[1:]))))
    values = grid.reduce((x0 - shift) / scale).reshape(*x0.shape[:2], *grid.shape)
    coarse = to_unit(grid.reduce(maps).reshape(-1, *grid.shape))
    near = torch.stack([_mean_of_alike(m, v) for m, v in zip(coarse, values, strict=True)])
    return resize(_smooth(near, values), tuple(maps.shape[1:]))


def _mean_of_alike(coarse: Tensor, values: Tensor) -> Tensor:
    """(*coarse), (c, *coarse) -> (*coarse)."""
    axes = [(torch.arange(n, device=coarse.device) + 0.5) / n for n in coarse.shape]
    position = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1) / DISTANCE
    look = values.flatten(1) / (LIKENESS * len(values) ** 0.5)
    at = torch.cat([look, position]).T
    weight = torch.exp(-0.5 * torch.cdist(at, at) ** 2)
    return ((weight @ coarse.flatten()) / weight.sum(1)).view_as(coarse)


def _smooth(maps: Tensor, values: Tensor) -> Tensor:
    """Solve (1 + SMOOTH * Laplacian) u = maps, with weak edges between different values."""
    steps = [values.diff(dim=axis).square().mean(1) for axis in range(2, values.dim())]
    weights = [SMOOTH * (torch.exp(-0.5 * step / EDGE**2) + 1e-3).double().cpu() for step in steps]

    def act(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        u = torch.from_numpy(flat).view_as(maps)
        out = u.clone()
        for axis, weight in enumerate(weights, 1):
            flow = weight * u.diff(dim=axis)
            out.narrow(axis, 1, flow.shape[axis]).add_(flow)
            out.narrow(axis, 0, flow.shape[axis]).sub_(flow)
        return out.flatten().numpy()

    whole = LinearOperator((maps.numel(), maps.numel()), matvec=act, dtype=np.float64)
    solved, _ = cg(whole, maps.flatten().double().cpu().numpy(), maxiter=CG_STEPS)
    return torch.from_numpy(solved).view_as(maps).to(maps)


def extent(maps: Tensor, x0: Tensor, bounds: tuple[float, float]) -> Tensor:
    """(n, *size) in [0, 1]: positive values, spread over similar points where that is meaningful, for the mask."""
    kind = kind_of(maps.shape[1:])
    lift = 0.5 if kind == "image" else 1.0  # below 1 widens the mask
    cover = to_unit(maps.clamp(min=0)) ** lift
    if kind == "signal":  # a value shows no wave
        return cover
    return to_unit(spread(cover, x0, bounds)) ** lift


def mean_fill(x0: Tensor) -> Tensor:
    """(n, c, *size) -> (n, c, 1, ...): the mean of each sample and channel."""
    return x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))


def hiding_filter(size: tuple[int, ...]) -> str:
    return f"gaussian_blur@{max(LEAST_BLUR, max(size) / BLUR):g}"


def hiding_bank(x0: Tensor, bounds: tuple[float, float], seeds: Sequence[int], spec: str | None = None) -> Tensor:
    """x0 (n, c, *size) -> (n, 2, c, *size): the input, and the input with everything hidden."""
    size = tuple(x0.shape[2:])
    palette = Palette.of([spec or hiding_filter(size)], len(size), x0.shape[1])
    if len(palette) != 1:
        raise OptionError(f"expected one filter at one severity to hide patches with, got {', '.join(palette.names)}")
    return palette.bank(x0, bounds, seeds)
