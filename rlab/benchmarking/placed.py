"""Severities 1 to 5 as distances, and sets made without a model: random distortions up to the distance of a severity.

Severity s is s/6 of the palette's reach. Shapes: n samples, f palette entries, p patches.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rlab.benchmarking.chunk import ChunkRows, Rows
from rlab.benchmarking.config import Ladder
from rlab.benchmarking.ladder_search import NEAR, fill_up, patch_costs, spent, unit_span
from rlab.core.attack import Attack
from rlab.core.env import render
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch

PLACED = "random placement"  # the policy of a set made without a model
_REACH = 32  # samples that measure how far a palette reaches
_SIXTHS = 6  # of the reach


def palette_reach(attack: Attack, batch: Batch) -> float:
    """How far the palette reaches against any model: the mean L2 of the first samples with the strongest entry on every patch."""
    costs = (_bank(attack, batch[at : at + 1], at)[1] for at in range(min(_REACH, len(batch))))
    far = [float(cost.amax(1).sum().sqrt()) for cost in costs]
    return sum(far) / len(far)


def with_distances(ladder: Ladder, reach: float) -> Ladder:
    """The ladder with the L2 of each severity."""
    if ladder.kind != "severity":
        return ladder
    return replace(ladder, distances=tuple(value / _SIXTHS * reach for value in ladder.values))


def _bank(attack: Attack, batch: Batch, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """The bank (n, f + 1, c, *size), the cost (n, f + 1, p) of its entries, and the seeds (n,)."""
    seeds = sample_seeds(attack.seed, first, len(batch))
    bank = attack.palette.bank(batch.x.contiguous(), batch.bounds, seeds.tolist())
    return bank, patch_costs(attack.grid, bank, unit_span(batch.bounds)), seeds


def place_chunk(chunk: ChunkRows, attack: Attack) -> Rows:
    """The rows of one chunk of a set without a model, whose ladder holds distances; all levels share one random order."""
    batch, rows, every = chunk.batch, Rows(), torch.arange(len(chunk.batch))
    bank, cost, seeds = _bank(attack, batch, chunk.first)
    chance = uniform(seeds, torch.full_like(seeds, 2**23), cost[0].numel()).view_as(cost)
    nothing = torch.zeros(len(cost), cost.shape[2], dtype=torch.int64)
    for level in chunk.plan.ladder.levels:
        assignment = fill_up(cost, nothing, chance, torch.full((len(cost),), level.target**2))
        far, x = spent(cost, assignment).sqrt().tolist(), render(bank, assignment, attack.grid)
        short = [f"no further patch fits: L2 {l2:.4g} of {level.target:.4g}" for l2 in far]
        reasons = ["" if l2 >= NEAR * level.target else why for l2, why in zip(far, short, strict=True)]
        for seed, row in zip(seeds.tolist(), chunk.at(level, every, assignment, x, reasons), strict=True):
            rows.append(row | {"policy": PLACED, "seed": seed})
    return rows
