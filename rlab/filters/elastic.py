"""The elastic transform: the common corruption that moves pixels smoothly."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.filters.base import Chance
from rlab.filters.corruptions import Parameters, corruption, uniform
from rlab.filters.image import gaussian_taps, mirrored, weighted


@corruption(
    "a bent surface",
    ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ((0.0625, 0.01, 0), (0.08125, 0.01, 0), (0.10625, 0.01, 0), (0.125, 0.01, 0), (0.15, 0.01, 0)),
)
def elastic_transform(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """Strength and width of a smooth random displacement, and that of three points of a tilt before it: shares of the side."""
    strength, sigma, tilt = level
    height, width = x.shape[2:]
    x = _tilted(x, tilt * height, chance) if tilt else x
    if not strength:
        return x
    moves = 2 * uniform(x, chance, 2, height, width) - 1
    for axis, side in ((2, height), (3, width)):
        moves = weighted(moves, (axis,), gaussian_taps(sigma * side, 3), mirrored)
    across, down = (strength * height * moves).unbind(1)
    columns = torch.arange(width, device=x.device) + across
    rows = torch.arange(height, device=x.device)[:, None] + down
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    return F.grid_sample(x, grid.to(x), padding_mode="reflection", align_corners=False)


def _tilted(x: Tensor, most: float, chance: Chance) -> Tensor:
    """The linear map that moves three points of x: (n, c, h, w) by up to `most` pixels each way."""
    n, _, height, width = x.shape
    away = max(1, min(height, width) // 3)
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]) * away + torch.tensor([width // 2, height // 2])
    one = torch.ones(n, 3, 1, dtype=torch.float64, device=x.device)
    before = corners.to(one).expand(n, 3, 2)
    after = before + most * (2 * uniform(x, chance, 3, 2).double() - 1)
    back = torch.linalg.solve(torch.cat([after, one], 2), before)  # (n, 3, 2): where each pixel comes from
    rows, columns = torch.meshgrid(
        *(torch.arange(side, device=x.device).to(one) for side in (height, width)), indexing="ij"
    )
    places = torch.stack([columns, rows, torch.ones_like(rows)], -1)  # (h, w, 3)
    source = (places[None, ..., None] * back[:, None, None]).sum(-2)
    grid = 2 * source / torch.tensor([max(1, width - 1), max(1, height - 1)]).to(one) - 1
    return F.grid_sample(x, grid.to(x), padding_mode="reflection", align_corners=True)
