"""Maps over inputs of any rank: from patches to points, to [0, 1], and cut to a mask by a stated rule."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.grid import PatchGrid
from rlab.errors import InputError

LINEAR = ("linear", "bilinear", "trilinear")  # torch's names, by rank from 1


def each(values: Tensor, like: Tensor) -> Tensor:
    """(n,) -> (n, 1, ...), to go with maps (n, *size)."""
    return values.view(-1, *(1,) * (like.dim() - 1))


def to_unit(maps: Tensor) -> Tensor:
    """(n, *size) scaled to [0, 1] sample by sample; a flat map becomes zeros."""
    low, high = (each(end, maps) for end in (maps.flatten(1).amin(1), maps.flatten(1).amax(1)))
    return (maps - low) / torch.where(high > low, high - low, 1.0)


def resize(maps: Tensor, size: tuple[int, ...]) -> Tensor:
    """(n, *coarse) -> (n, *size), linear along every axis."""
    return interpolate(maps[:, None], size=size, mode=LINEAR[len(size) - 1], align_corners=False)[:, 0]


def raise_patches(values: Tensor, grid: PatchGrid) -> Tensor:
    """(n, p) -> (n, *size), linear between the centres of patches."""
    whole = tuple(count * side for count, side in zip(grid.shape, grid.patch, strict=True))
    full = resize(values.reshape(-1, *grid.shape), whole)
    return full[(slice(None), *(slice(0, length) for length in grid.size))]


def even_grid(size: tuple[int, ...], along: int) -> PatchGrid:
    """About `along` patches on every axis, fewer where an axis is shorter."""
    return PatchGrid(size, tuple(-(-length // min(along, length)) for length in size))


def otsu(maps: Tensor) -> Tensor:
    """(n, *size) -> (n,): the threshold that best parts each map's values in two (Otsu 1979), exact."""
    values = maps.flatten(1).double().sort(dim=1).values
    count = values.shape[1]
    below = torch.arange(1, count, device=maps.device)
    sums = values.cumsum(1)
    gap = (sums[:, -1:] - sums[:, :-1]) / (count - below) - sums[:, :-1] / below
    at = (below * (count - below) * gap**2).argmax(1, keepdim=True)
    return ((values.gather(1, at) + values.gather(1, at + 1)) / 2).squeeze(1).to(maps.dtype)


def top_share(maps: Tensor, share: float) -> Tensor:
    """(n, *size) -> bool: the highest `share` of the points; ties go to the earlier point."""
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
        raise InputError(f"expected a rule like 'otsu' or 'share:0.2' (a share between 0 and 1), got {rule!r}")
    return top_share(maps, share)
