"""The common corruptions that lay something over an image, snow, frost and fog, and the one that bends it."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.filters.base import Chance
from rlab.filters.corruptions import Parameters, corruption, normal, smeared, uniform, zoomed
from rlab.filters.image import gaussian_taps, mirrored, weighted

_LUMA = (0.299, 0.587, 0.114)
_ICE = (0.88, 1.02, 1.09)


def _coloured(x: Tensor, colour: tuple[float, float, float]) -> Tensor:
    """A colour for x: (n, c, h, w), or its grey unless x has three channels."""
    grey = sum(share * part for share, part in zip(_LUMA, colour, strict=True))
    return torch.tensor(colour if x.shape[1] == 3 else (grey,), device=x.device, dtype=x.dtype).view(1, -1, 1, 1)


def _grey(x: Tensor) -> Tensor:
    """(n, c, h, w) -> (n, 1, h, w)."""
    shares = _LUMA if x.shape[1] == 3 else (1 / x.shape[1],) * x.shape[1]
    out = torch.zeros_like(x[:, :1])
    for at, share in enumerate(shares):
        out = out + share * x[:, at : at + 1]
    return out


@corruption(
    "snowfall",
    (
        *((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9)),
        *((0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
    ),
    (
        *((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7)),
        *((0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
    ),
)
def snow(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """Enlarged noise above a threshold, smeared downwards and laid over a whitened image twice, once upside down."""
    mean, std, zoom, threshold, radius, sigma, kept = level
    flakes = zoomed(mean + std * normal(x, chance, 1, *x.shape[2:]), zoom)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    flakes = smeared(flakes, int(radius), sigma, -math.pi * (0.75 - 0.5 * uniform(x, chance)))
    flakes = flakes[:, :, : x.shape[2], : x.shape[3]]
    whiter = kept * x + (1 - kept) * torch.maximum(x, _grey(x) * 1.5 + 0.5)
    return whiter + flakes + flakes.flip((2, 3))


def _plasma(x: Tensor, chance: Chance, decay: float) -> Tensor:
    """(n, 1, h, w) in [0, 1]: a fractal by the diamond-square algorithm, each octave 1 / decay² as strong as the last."""
    size = max(2, 2 ** (max(x.shape[2:]) - 1).bit_length())
    field, step, wobble = torch.zeros(len(x), size, size, device=x.device, dtype=x.dtype), size, 100.0

    def mean(total: Tensor) -> Tensor:
        return total / 4 + wobble * wobble * (2 * uniform(x, chance, *total.shape[1:]) - 1)

    while step >= 2:
        half = step // 2
        corner = field[:, ::step, ::step]
        pairs = corner + corner.roll(-1, 1)
        middle = mean(pairs + pairs.roll(-1, 2))
        field[:, half::step, half::step] = middle
        field[:, ::step, half::step] = mean(middle + middle.roll(1, 1) + corner + corner.roll(-1, 2))
        field[:, half::step, ::step] = mean(middle + middle.roll(1, 2) + corner + corner.roll(-1, 1))
        step, wobble = half, wobble / decay
    low, high = field.amin((1, 2), keepdim=True), field.amax((1, 2), keepdim=True)
    return ((field - low) / (high - low))[:, None, : x.shape[2], : x.shape[3]]


@corruption(
    "frost on the lens",
    ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    """A generated texture with the mean colour and the contrast of the photographs that the published code crops."""
    kept, added = level
    ice = 0.25 + 0.8 * _plasma(x, chance, 1.14)
    return kept * x + added * ice * _coloured(x, _ICE)


@corruption(
    "fog",
    ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(x: Tensor, level: Parameters, chance: Chance) -> Tensor:
    thick, decay = level
    brightest = x.flatten(1).amax(1).view(-1, 1, 1, 1)
    return (x + thick * _plasma(x, chance, decay)) * brightest / (brightest + thick)


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
    sides = (torch.arange(side, device=x.device).to(one) for side in (height, width))
    rows, columns = torch.meshgrid(*sides, indexing="ij")
    places = torch.stack([columns, rows, torch.ones_like(rows)], -1)  # (h, w, 3)
    source = (places[None, ..., None] * back[:, None, None]).sum(-2)
    grid = 2 * source / torch.tensor([max(1, width - 1), max(1, height - 1)]).to(one) - 1
    return F.grid_sample(x, grid.to(x), padding_mode="reflection", align_corners=True)
