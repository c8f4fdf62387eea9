"""Spreads a map over nearby points that look alike: from the most important part of an object to its extent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.explanation.maps import each, even_grid, resize, to_unit
from rlab.filters.palette import unit_scale


@dataclass(frozen=True)
class SpreadSettings:
    """Defaults for data of one rank."""

    lift: float  # exponent before and after spreading; below 1 widens the mask
    spread: bool  # off for signals, where a value does not show which wave it belongs to


SETTINGS = (SpreadSettings(1.0, False), SpreadSettings(0.5, True), SpreadSettings(1.0, True))  # by rank, from 1


@dataclass(frozen=True)
class Spread:
    """Average a map over points by similarity and distance, then smooth it without crossing edges."""

    points: int = 3136  # approximate maximum for the coarse copy
    likeness: float = 0.05  # difference of similar values, as a share of the data's range
    distance: float = 0.2  # as a share of each axis
    smooth: float = 20.0
    edge: float = 0.05

    def __call__(self, maps: Tensor, x0: Tensor, bounds: tuple[float, float]) -> Tensor:
        """maps (n, *size), x0 (n, c, *size) -> (n, *size)."""
        shift, scale = unit_scale(x0, bounds)
        grid = even_grid(tuple(maps.shape[1:]), round(self.points ** (1 / len(maps.shape[1:]))))
        values = grid.reduce((x0 - shift) / scale).reshape(*x0.shape[:2], *grid.shape)
        coarse = to_unit(grid.reduce(maps).reshape(-1, *grid.shape))
        near = torch.stack([self._mean(m, v) for m, v in zip(coarse, values, strict=True)])
        return resize(self._smooth(near, values), tuple(maps.shape[1:]))

    def _mean(self, coarse: Tensor, values: Tensor) -> Tensor:
        """(*coarse), (c, *coarse) -> (*coarse)."""
        axes = [(torch.arange(n, device=coarse.device) + 0.5) / n for n in coarse.shape]
        position = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1) / self.distance
        look = values.flatten(1) / (self.likeness * len(values) ** 0.5)
        at = torch.cat([look, position]).T
        weight = torch.exp(-0.5 * torch.cdist(at, at) ** 2)
        return ((weight @ coarse.flatten()) / weight.sum(1)).view_as(coarse)

    def _smooth(self, maps: Tensor, values: Tensor) -> Tensor:
        """Solve (1 + smooth * Laplacian) u = maps, with weak edges between different values."""
        weights = []
        for axis in range(2, values.dim()):
            step = values.diff(dim=axis).square().mean(1)
            weights.append(self.smooth * (torch.exp(-0.5 * step / self.edge**2) + 1e-3))

        def act(u: Tensor) -> Tensor:
            out = u.clone()
            for axis, weight in enumerate(weights, 1):
                flow = weight * u.diff(dim=axis)
                out.narrow(axis, 1, flow.shape[axis]).add_(flow)
                out.narrow(axis, 0, flow.shape[axis]).sub_(flow)
            return out

        return conjugate_gradients(act, maps)


def conjugate_gradients(act: Callable[[Tensor], Tensor], b: Tensor, steps: int = 60) -> Tensor:
    """Solve act(u) = b (n, *size) for a symmetric positive `act` on each row (Hestenes and Stiefel 1952)."""
    u = b.clone()
    rest = b - act(u)
    way, size = rest.clone(), rest.flatten(1).square().sum(1)
    for _ in range(steps):
        moved = act(way)
        length = size / (way * moved).flatten(1).sum(1).clamp(min=1e-30)
        u = u + each(length, u) * way
        rest = rest - each(length, u) * moved
        now = rest.flatten(1).square().sum(1)
        way, size = rest + each(now / size.clamp(min=1e-30), way) * way, now
    return u
