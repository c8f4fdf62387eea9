"""Severities 1 to 5 as distances, and sets made without a model: random distortions up to the distance of a severity.

Severity s is s/6 of the palette's reach. Calibrated on a reference model, it is the distance at which random distortions
cause s/6 of the errors they cause at the reach. Shapes: n samples, f palette entries, p patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.benchmarking.config import Ladder
from rlab.benchmarking.ladder_search import NEAR, fill_up, patch_costs, spent
from rlab.benchmarking.sample_files import Rows, SampleFiles
from rlab.core.attack import Attack
from rlab.core.env import render
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch
from rlab.errors import ModelError
from rlab.filters.palette import bounded
from rlab.victims.base import Victim

PLACED = "random placement"  # the policy of a set made without a model
_REACH = 32  # samples that measure how far a palette reaches
SIXTHS = 6  # of the reach, or of the errors there
TRIED = 24  # distances at which a reference is queried, evenly spaced up to the reach, beside the unchanged samples


def unit_span(bounds: tuple[float, float]) -> float:
    """One unit of L2 in the data's values."""
    return bounds[1] - bounds[0] if bounded(bounds) else 1.0


def palette_reach(attack: Attack, batch: Batch) -> float:
    """How far the palette reaches against any model: the mean L2 of the first samples with the strongest entry on every patch."""
    costs = (_bank(attack, batch[at : at + 1], at)[1] for at in range(min(_REACH, len(batch))))
    far = [float(cost.amax(1).sum().sqrt()) for cost in costs]
    return sum(far) / len(far)


def calibrated_on(
    ladder: Ladder, reach: float, name: str, reference: Victim, batch: Batch, attack: Attack
) -> list[dict[str, Any]]:
    """For each severity, the L2 at which the reference makes 1/6, 2/6, ... of its errors at the reach, the queries used."""
    before, tried = reference.rows.total(), np.linspace(0, reach, TRIED + 1).tolist()
    wrong = torch.cat([_errors(reference, batch, attack, chunk, tried[1:]) for chunk in attack.chunks(len(batch))])
    if not len(wrong):
        raise ModelError(f"the reference {name!r} is wrong on every sample and cannot calibrate: name another model")
    lost = np.maximum.accumulate([0.0, *wrong.double().mean(0).tolist()])  # errors never decrease with the distance
    if lost[-1] == 0:
        raise ModelError(f"the reference {name!r} is right however strong the palette: name stronger filters")
    rows, steps = reference.rows.total() - before, list[dict[str, Any]]()
    for value in ladder.values:
        share = value / SIXTHS * lost[-1]
        at = int((lost >= share - 1e-9).argmax())  # between this distance and the one before
        l2 = float(np.interp(share, lost[at - 1 : at + 1], tried[at - 1 : at + 1]))
        steps.append({"severity": value, "l2": l2, "rows": rows})
    return steps


def _errors(reference: Victim, batch: Batch, attack: Attack, chunk: slice, tried: Sequence[float]) -> Tensor:
    """(m, distances): 1 where the reference errs, for the m samples it gets right unchanged."""
    some = batch[chunk]
    right = reference(some.x.contiguous().to(reference.device), "train").argmax(1).cpu() == some.y
    bank, cost, seeds = _bank(attack, some, chunk.start)
    wrong = []
    for assignment in placements(cost, seeds, tried):
        x = render(bank[right], assignment[right], attack.grid)
        if len(x):
            wrong.append(reference(x.to(reference.device), "train").argmax(1).cpu() != some.y[right])
    return torch.stack(wrong, 1).long() if wrong else torch.zeros(0, len(tried), dtype=torch.int64)


def _bank(attack: Attack, batch: Batch, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """The bank (n, f + 1, c, *size), the cost (n, f + 1, p) of its entries, and the seeds (n,)."""
    seeds = sample_seeds(attack.seed, first, len(batch))
    bank = attack.palette.bank(batch.x.contiguous(), batch.bounds, seeds.tolist())
    return bank, patch_costs(attack.grid, bank, unit_span(batch.bounds)), seeds


def placements(cost: Tensor, seeds: Tensor, distances: Sequence[float]) -> Iterator[Tensor]:
    """cost (n, f + 1, p) -> random assignments (n, p) within each distance; all distances share one random order."""
    chance = uniform(seeds, torch.full_like(seeds, 2**23), cost[0].numel()).view_as(cost)
    nothing = torch.zeros(len(cost), cost.shape[2], dtype=torch.int64)
    for distance in distances:
        yield fill_up(cost, nothing, chance, torch.full((len(cost),), float(distance) ** 2))


def place_chunk(files: SampleFiles, attack: Attack) -> Rows:
    """The rows of one chunk of a set without a model, with their files; the plan's ladder holds distances."""
    batch, levels = files.batch, files.plan.ladder.levels
    bank, cost, seeds = _bank(attack, batch, files.first)
    rows, every = list(files.originals()) if files.plan.originals else [], torch.arange(len(batch))
    for level, assignment in zip(levels, placements(cost, seeds, [level.target for level in levels]), strict=True):
        far = spent(cost, assignment).sqrt()
        at, x = far >= NEAR * level.target, render(bank, assignment, attack.grid)
        x[at] = files.write(level.name, every[at], x[at])
        short = [f"no further patch fits: L2 {l2:.4g} of {level.target:.4g}" for l2 in far.tolist()]
        reasons = ["" if near else why for near, why in zip(at.tolist(), short, strict=True)]
        for seed, row in zip(seeds.tolist(), files.rows(level, every, assignment, x, reasons), strict=True):
            rows.append(row | {"policy": PLACED, "seed": seed})
    return files.plan.ordered(rows)
