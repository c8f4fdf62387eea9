"""The belief's model written out in pixel space, entry by entry and patch by patch: what the fast code must agree with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.grid import PatchGrid
from rlab.policies.belief.answers import Assumptions, History, no_answers, observe
from rlab.policies.belief.geometry import Geometry, make_geometry
from rlab.policies.belief.levels import blocks
from tests.helpers import inside

Hypothesis = tuple[float, float, float, float, float]
SIZES: dict[int, tuple[int, ...]] = {1: (9,), 2: (4, 5), 3: (2, 3, 4)}
PATCHES: dict[int, tuple[int, ...]] = {1: (2,), 2: (2, 2), 3: (1, 2, 2)}  # the last ones along an axis may be short
CHANNELS, ENTRIES = 2, 3


@dataclass(frozen=True)
class World:
    """n samples whose changes and directions are random numbers."""

    change: Tensor  # (n, f, c, *size)
    directions: Tensor | None  # (n, k, c, *size)
    grid: PatchGrid
    relevance: float

    @property
    def geometry(self) -> Geometry:
        return make_geometry(self.change, self.directions, self.grid, "l2", self.relevance)

    def model(self, *hypotheses: Hypothesis, curvature: float = 1.0) -> Assumptions:
        return Assumptions(hypotheses, tuple(blocks(self.grid, along) for along in (1, 2)), 0.3, curvature)


def make_world(
    rank: int, k: int, n: int = 2, relevance: float = 0.8, dtype: torch.dtype = torch.float64, seed: int = 0
) -> World:
    draw, grid = torch.Generator().manual_seed(seed + rank), PatchGrid(SIZES[rank], PATCHES[rank])
    change = 0.5 * torch.randn(n, ENTRIES, CHANNELS, *grid.size, generator=draw, dtype=torch.float64)
    directions = torch.randn(n, k, CHANNELS, *grid.size, generator=draw, dtype=torch.float64) if k else None
    return World(change.to(dtype), None if directions is None else directions.to(dtype), grid, relevance)


def make_queries(world: World, queries: int, rivals: int = 2, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Assignments (n, p) with something at every third patch or so, and drops (n, a)."""
    draw, n = torch.Generator().manual_seed(seed), len(world.change)
    out = []
    for _ in range(queries):
        assignment = torch.randint(-ENTRIES, ENTRIES + 1, (n, len(world.grid)), generator=draw).clamp(min=0)
        out.append((assignment, torch.randn(n, rivals, generator=draw, dtype=torch.float64).to(world.change.dtype)))
    return out


@dataclass(frozen=True)
class Known(Rows):
    """A geometry, and what is known after some queries."""

    geometry: Geometry
    answers: History

    def after(self, model: Assumptions, assignment: Tensor, drop: Tensor, most: int = 99) -> Known:
        return Known(self.geometry, observe(self.answers, self.geometry, model, assignment, drop, most))


def nothing_known(geometry: Geometry, model: Assumptions, rivals: int = 1) -> Known:
    return Known(geometry, no_answers(geometry, model, rivals))


def known_after(world: World, model: Assumptions, queries: list[tuple[Tensor, Tensor]], most: int = 99) -> Known:
    """What is known after these queries."""
    known = nothing_known(world.geometry, model, queries[0][1].shape[1] if queries else 1)
    for assignment, drop in queries:
        known = known.after(model, assignment, drop, most)
    return known


def patch_changes(world: World, row: int) -> Tensor:
    """(f p, values): each entry's change at each patch alone."""
    f, p = world.change.shape[1], len(world.grid)
    out = torch.zeros(f, p, *world.change.shape[2:], dtype=torch.float64)
    for patch in range(p):
        box = inside(world.grid.box(patch))
        out[:, patch][box] = world.change[row][box].double()
    return out.flatten(0, 1).flatten(1)


def prior(world: World, row: int, model: Assumptions, hypothesis: Hypothesis) -> tuple[Tensor, Tensor]:
    """Mean (f p,) and covariance (f p, f p) of what single changes bring, before any query; g's own over every value."""
    beta, s, sigma, mu, _ = hypothesis
    changes, p = patch_changes(world, row), len(world.grid)
    f, values = len(changes) // p, changes.shape[1]
    mean_g, weight = torch.zeros(values, dtype=torch.float64), torch.ones(p, dtype=torch.float64)
    cov_g = torch.zeros(values, values, dtype=torch.float64)
    if world.directions is not None:
        unit = world.directions[row].double().flatten(1)
        unit = unit / unit.norm(dim=1, keepdim=True)
        mean_g, cov_g = beta * unit.sum(0), s**2 * unit.T @ unit
        energy, points = torch.zeros_like(weight), torch.zeros_like(weight)
        for patch in range(p):
            box = inside(world.grid.box(patch))
            energy[patch] = unit.unflatten(1, world.change.shape[2:])[box].square().sum()
            points[patch] = world.change[0, 0, 0][box].numel()
        density = energy / points / (energy.sum() / points.sum())
        weight = 1 - world.relevance + world.relevance * density
    each = world.grid.expand(weight).expand(world.change.shape[2:]).flatten()
    cov_g = cov_g + sigma**2 * torch.diag(each)
    length = changes.norm(dim=1).view(f, p)
    mass, cosine = length / length.sum(1, keepdim=True), torch.zeros(f, p, dtype=torch.float64)
    for patch in range(p):
        at = changes.view(f, p, -1)[:, patch]
        between = at @ at.T / (length[:, patch, None] * length[:, patch]).clamp(min=1e-12)
        cosine[:, patch] = between.amin(1).clamp(max=0)
    mean, cov = changes @ mean_g + mu * (mass * (1 + cosine)).flatten(), changes @ cov_g @ changes.T
    entry, patch_of = torch.arange(f).repeat_interleave(p), torch.arange(p).repeat(f)
    for level in model.regions:
        region, count = level[patch_of], int(level.max()) + 1
        together = (entry[:, None] == entry) & (region[:, None] == region)
        cov = cov + model.rho**2 * count * together * mass.flatten()[:, None] * mass.flatten()
    return mean, cov


def observed(
    world: World, row: int, model: Assumptions, hypothesis: Hypothesis, queries: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, Tensor]:
    """What was asked (T, f p), the noise's variances (T,) and the drops (T, a)."""
    p = len(world.grid)
    asked = torch.zeros(len(queries), ENTRIES, p, dtype=torch.float64)
    for t, (assignment, _) in enumerate(queries):
        for patch, entry in enumerate(assignment[row].tolist()):
            if entry:
                asked[t, entry - 1, patch] = 1
    drops = torch.stack([drop[row].double() for _, drop in queries])
    far = drops.amax(1).abs().clamp(max=1.5)
    return asked.flatten(1), hypothesis[4] ** 2 * (1 + (model.curvature * far) ** 2), drops


def posterior(
    world: World, row: int, model: Assumptions, hypothesis: Hypothesis, queries: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Mean (a, f p) and covariance (f p, f p) after the queries, by the textbook."""
    mean, cov = prior(world, row, model, hypothesis)
    asked, noise, drops = observed(world, row, model, hypothesis, queries)
    gain = cov @ asked.T @ torch.linalg.inv(asked @ cov @ asked.T + torch.diag(noise))
    return (mean[:, None] + gain @ (drops - (asked @ mean)[:, None])).T, cov - gain @ asked @ cov


def log_evidence(
    world: World, row: int, model: Assumptions, hypothesis: Hypothesis, queries: list[tuple[Tensor, Tensor]]
) -> float:
    """The log probability of the drops, averaged over the rivals, without the constant."""
    mean, cov = prior(world, row, model, hypothesis)
    asked, noise, drops = observed(world, row, model, hypothesis, queries)
    normal = torch.distributions.MultivariateNormal(asked @ mean, asked @ cov @ asked.T + torch.diag(noise))
    return float(normal.log_prob(drops.T).mean()) + len(queries) / 2 * math.log(2 * math.pi)
