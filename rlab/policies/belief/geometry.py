"""What a palette can do at each patch, as a linear model sees it: all that a belief needs to know of the inputs.

Computed once per sample; no pixel is touched after that, and only the grid knows the rank of the data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.distances import POWERS, Measure
from rlab.core.grid import PatchGrid
from rlab.core.vectors import cholesky, unit
from rlab.errors import DataError, ModelError
from rlab.policies.belief.levels import group_levels
from rlab.priors.trained import projection

WHOLE = 4.0  # for grouped patches, the spread of the rest is scaled as if changing everything came to this L2
# Patches are grouped only if at least this share of what entries do is not undone by another entry: where each entry has its
# opposite, signs differ from patch to patch, and the effects in a group cancel out.
ONE_SIDED = 0.25
# Relative to a patch's own scale: entries that undo each other make singular Gram matrices. Tenfold at each of the steps.
_JITTER, _STEPS = 1e-6, 6


@dataclass(frozen=True)
class Geometry(Rows):
    """Entry 0 of the axes of length f + 1 is the untouched input, which changes nothing."""

    gram: Tensor  # (n, f + 1, f + 1, p) <change_i, change_j> at a patch
    root: Tensor  # (n, p, f, f) its Cholesky factor
    weight: Tensor  # (n, p) how much more the rest may vary at a patch if the prior's directions are right
    projection: Tensor  # (n, f + 1, k, p) <d_k, change_i> along the prior's directions
    cost: Tensor  # (n, f, p) what an entry adds to the distance, additive over patches
    mass: Tensor  # (n, f + 1, p) a patch's share of all that the entry could change
    lift: Tensor  # (n, f + 1, p) the same, where a fall of the margin is expected before any query
    level: Tensor  # (n,) the level of patch groups that proposals start from, see levels


def make_geometry(
    change: Tensor,
    directions: Tensor | None,
    grid: PatchGrid,
    measure: Measure = "l2",
    relevance: float = 0.0,
    central: float = 0.0,
) -> Geometry:
    """change (n, f, c, *size) in units of one, directions (n, k, c, *size) of any length or None.

    `relevance`: how much the spread of the rest follows the directions; 0 spreads it evenly. `central`: how much of the lift
    lies in the middle of a picture; 0 spreads it evenly too.
    """
    n, f = change.shape[:2]
    gram = change.new_zeros(n, len(grid), f + 1, f + 1)
    for i in range(f):
        for j in range(i, f):
            gram[:, :, i + 1, j + 1] = gram[:, :, j + 1, i + 1] = grid.collect(change[:, i] * change[:, j])
    squared = gram.diagonal(dim1=2, dim2=3)[:, :, 1:]  # (n, p, f)
    unopposed, last = _unopposed(gram[:, :, 1:, 1:]), len(group_levels(grid)) - 1
    level = torch.where(unopposed.mean((1, 2)) > ONE_SIDED, 0, last)
    evened = _evened(squared, level < last)
    mass = squared.sqrt().transpose(1, 2)
    mass = mass / mass.sum(2, keepdim=True).clamp(min=1e-9)
    lift = mass * unopposed * _centre(grid, central).to(mass)
    return Geometry(
        gram=(gram * evened).permute(0, 2, 3, 1).contiguous(),
        root=_root(gram[:, :, 1:, 1:], squared.mean(2)) * evened.sqrt(),
        weight=_weight(directions, grid, relevance, squared),
        projection=make_projection(change, directions, grid),
        cost=squared.transpose(1, 2).contiguous() if measure == "l2" else costs(change, grid, measure),
        mass=torch.cat([torch.zeros_like(mass[:, :1]), mass], 1),
        lift=torch.cat([torch.zeros_like(mass[:, :1]), lift], 1),
        level=level,
    )


def _root(gram: Tensor, scale: Tensor) -> Tensor:
    """(n, p, f, f) -> its Cholesky factor, with more on the diagonal where rounding has left no other; scale: (n, p)."""
    added = _JITTER * scale + 1e-10
    for _ in range(_STEPS):
        root, solved = cholesky(gram + torch.diag_embed(added[..., None].expand(gram.shape[:-1])))
        if solved.all():
            return root
        added = torch.where(solved, added, 10 * added)
    raise DataError(
        "what the palette does to these inputs is not finite: check the filters and the data for infinite values"
    )


def _weight(directions: Tensor | None, grid: PatchGrid, relevance: float, squared: Tensor) -> Tensor:
    """(n, p): how much the rest may vary at each patch, 1 on average."""
    if directions is None or not relevance:
        return torch.ones_like(squared[..., 0])
    energy = grid.total(grid.merge(unit(directions, 2).square()).mean(1))  # (n, p)
    points = grid.points().to(energy)
    density = energy / points * (points.sum() / energy.sum(1, keepdim=True).clamp(min=1e-12))
    return (1 - relevance) + relevance * density


def _evened(squared: Tensor, grouped: Tensor) -> Tensor:
    """(n, 1, 1, 1): 1, or less for grouped patches: among many, a single patch matters less than among few."""
    whole = squared.sum(1).sqrt().mean(1)  # L2 of changing everything, averaged over the entries
    return torch.where(grouped, (WHOLE / whole.clamp(min=WHOLE)).square(), 1.0)[:, None, None, None]


def _centre(grid: PatchGrid, central: float) -> Tensor:
    """(p,): how much of the margin's fall is expected at each patch, 1 on average: objects are mostly in the middle."""
    bump, axes = torch.ones(grid.shape), len(grid.shape)
    for axis in grid.picture:
        count = grid.shape[axis]
        along = ((torch.arange(count) + 0.5) / count * 2 - 1).square().mul(-2).exp()
        bump = bump * along.view([-1 if a == axis else 1 for a in range(axes)])
    bump = bump.flatten() / bump.mean()
    return (1 - central) + central * bump


def _unopposed(gram: Tensor) -> Tensor:
    """(n, p, f, f) -> (n, f, p): 0 where another entry does the exact opposite, because not both can be expected to help."""
    length = gram.diagonal(dim1=2, dim2=3).clamp(min=1e-12).sqrt()
    cosine = gram / (length[..., None] * length[..., None, :])
    return (1 + cosine.amin(3).clamp(max=0)).transpose(1, 2)


def make_projection(change: Tensor, directions: Tensor | None, grid: PatchGrid) -> Tensor:
    """(n, f + 1, k, p), along the directions scaled to length one."""
    n, f = change.shape[:2]
    if directions is None or not directions.shape[1]:
        return change.new_zeros(n, f + 1, 0, len(grid))
    along = projection(unit(directions, 2), change, grid).to(change)  # a prior may return doubles
    return torch.cat([torch.zeros_like(along[:, :1]), along], 1)


def costs(change: Tensor, grid: PatchGrid, measure: Measure) -> Tensor:
    """change (n, f, c, *size) -> (n, f, p): sums over points whose root (see `POWERS`) is the distance.

    A high power approximates the largest change.
    """
    power = POWERS[measure]
    if power == 0:
        return grid.total((grid.merge(change != 0) > 0).to(change.dtype))
    return torch.stack([grid.collect(one.abs().pow(power)) for one in change.unbind(1)], 1)


def cost_of(distance: Tensor, measure: Measure, values: int) -> Tensor:
    """The summed cost of a distance; `values` is the number of values in an input."""
    power = POWERS[measure]
    return distance if power == 0 else distance * values if power == 1 else distance**power


def check_directions(directions: Tensor | None, x: Tensor, prior: str) -> None:
    """Refuse directions that do not fit inputs x (n, c, *size)."""
    if directions is None:
        return
    want = tuple(x.shape[1:])
    if directions.dim() != x.dim() + 1 or tuple(directions.shape[2:]) != want or len(directions) != len(x):
        raise ModelError(
            f"expected directions of shape (samples, any number, {', '.join(map(str, want))}) from the prior {prior!r}, "
            f"got {tuple(directions.shape)}: it was made for other data"
        )
    if not torch.isfinite(directions).all():
        raise ModelError(f"the prior {prior!r} returned directions that are not finite: leave it out or fix it")


def distance_of(cost: Tensor, measure: Measure, values: int) -> Tensor:
    """The inverse of `cost_of`."""
    power = POWERS[measure]
    return cost if power == 0 else cost / values if power == 1 else cost ** (1 / power)
