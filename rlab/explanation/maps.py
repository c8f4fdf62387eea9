"""Maps of any rank: from patches to points, scaled to [0, 1], and thresholded to masks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.grid import PatchGrid
from rlab.errors import OptionError

LINEAR = ("linear", "bilinear", "trilinear")  # torch's names, by rank, from 1


def each(values: Tensor, like: Tensor) -> Tensor:
    """(n,) -> (n, 1, ...), to broadcast with maps (n, *size)."""
    return values.view(-1, *(1,) * (like.dim() - 1))


def to_unit(maps: Tensor) -> Tensor:
    """Scale each map (n, *size) to [0, 1]; a flat map becomes zeros."""
    low, high = (each(end, maps) for end in (maps.flatten(1).amin(1), maps.flatten(1).amax(1)))
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


def top_share(maps: Tensor, share: float) -> Tensor:
    """(n, *size) -> bool: the highest `share` of the points; the earlier point wins ties."""
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    keep = round(share * order.shape[1])
    mask = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :keep], True)
    return mask.view_as(maps)


def threshold(maps: Tensor, rule: str = "otsu") -> Tensor:
    """(n, *size) -> bool, by 'otsu' or by 'share:0.2', the highest fifth of the points."""
    name, _, value = rule.partition(":")
    if name == "otsu" and not value:
        return maps > each(otsu(maps), maps)
    try:
        share = float(value) if name == "share" else -1.0
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise OptionError(f"expected a rule like 'otsu' or 'share:0.2' (a share between 0 and 1), got {rule!r}")
    return top_share(maps, share)
