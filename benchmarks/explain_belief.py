"""What only the belief has: intervals, held against brute force, and a map within any number of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks import common
from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.explanation.base import Explanation, hiding_bank
from rlab.explanation.belief import BY_RANK, SHARES, Belief
from rlab.explanation.black_box import Rise
from rlab.explanation.maps import even_grid
from rlab.explanation.scores import MethodComparison, area, curves
from rlab.victims.base import Victim

WITHIN = (120, 200, 350, 500)  # queries of the anytime table


def measured(victim: Victim, batch: Batch, found: Explanation, contexts: int = 300) -> tuple[Tensor, Tensor]:
    """(n, g) mean fall of the class's probability when a region is removed, and its standard error."""
    assert found.regions is not None
    regions, x0 = found.regions.grid, batch.x.to(victim.device)
    blank = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    boxes = regions.expand(torch.eye(len(regions), device=x0.device)).bool()
    grids = [even_grid(batch.size, along) for along in BY_RANK[batch.rank - 1].sets]
    falls = torch.empty(len(batch), len(regions), contexts)
    for row in range(len(batch)):
        beside = []
        for number in range(contexts):
            grid = grids[number % len(grids)]
            draw = uniform(torch.tensor([row + 10**6]), torch.tensor([number]), len(grid) + 1).to(x0.device)[0]
            beside.append(grid.expand(draw[1:] < SHARES[0] + (SHARES[1] - SHARES[0]) * draw[0]))
        context, label = torch.stack(beside), int(found.labels[row])
        for region, box in enumerate(boxes):
            hidden = torch.cat([context | box, context & ~box])[:, None]
            parts = torch.where(hidden, blank[row], x0[row]).split(512)
            p = torch.cat([victim.probabilities(victim(x))[:, label] for x in parts])
            falls[row, region] = (p[contexts:] - p[:contexts]).cpu()
    return falls.mean(2), falls.std(2) / contexts**0.5


def interval_coverage(victim: Victim, batch: Batch, found: Explanation, contexts: int = 300) -> float:
    """The share of regions whose 90% interval holds what was measured; what the measuring itself leaves open is allowed for."""
    assert found.regions is not None
    truth, error = measured(victim, batch, found, contexts)
    width = (found.regions.half_width() ** 2 + (1.645 * error) ** 2).sqrt()
    return float(((found.regions.effect - truth).abs() < width).float().mean())


def within_table(victim: Victim, comparison: MethodComparison, seed: int, within: tuple[int, ...]) -> str:
    """Deletion and insertion of our map and of RISE's within so many queries."""
    batch, rows = comparison.batch, []
    x0 = batch.x.to(victim.device)
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    for queries in within:
        cells: list[str] = []
        for method in (Belief(queries), Rise(masks=queries - 1)):
            maps = method(victim, batch, batch.y, seed).maps
            both = [area(curves(victim, x0, hidden, maps, batch.y, insert=insert)).mean() for insert in (False, True)]
            cells += [f"{float(value):.3f}" for value in both]
        rows.append((str(queries), *cells))
    return common.table(("within queries", "deletion", "insertion", "RISE's deletion", "RISE's insertion"), rows)
