"""What only the belief offers: intervals, checked by brute force, and a map after any number of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.explanation.base import SHARES
from rlab.explanation.belief import moved_boxes, regions_of
from rlab.explanation.effects import ROUNDING
from rlab.explanation.explanation import Explanation
from rlab.explanation.maps import BY_RANK, even_grid, hiding_bank, threshold
from rlab.explanation.run import parse_method
from rlab.explanation.scores import against_truth, area, curves, overlap
from rlab.victims.base import Victim

Scores = dict[str, dict[str, dict[str, list[float]]]]  # by method, queries allowed and score, of every sample
FEWER = ("belief", "rise")  # the methods of the table of fewer queries
WITHIN = (150, 250, 350)  # queries of the table of fewer queries, next to our own number


def measured(victim: Victim, batch: Batch, found: Explanation, contexts: int = 300) -> tuple[Tensor, Tensor]:
    """(n, g) mean drop of the class's probability when a region is removed, and its standard error."""
    assert found.effects is not None
    regions, x0 = regions_of(batch.size), batch.x.to(victim.device)
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
    """The share of regions whose 90% interval contains the measured effect, allowing for the error of the measurement."""
    assert found.effects is not None
    truth, error = measured(victim, batch, found, contexts)
    assert found.effects.mean is not None
    assert found.effects.width is not None
    width = (found.effects.width**2 + (1.645 * error) ** 2).sqrt()
    return float(((found.effects.mean - truth).abs() < width).float().mean())


def sentence_coverage(victim: Victim, batch: Batch, found: Explanation, cuts: int = 20) -> dict[str, float]:
    """The shares of regions, removed alone, and of their removals with moved edges, whose effect the sentence's interval holds."""
    assert found.effects is not None
    regions, x0 = regions_of(batch.size), batch.x.to(victim.device)
    blank = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    moves = (
        2
        * uniform(torch.arange(len(regions) * cuts), torch.tensor(10**6).expand(len(regions) * cuts), 2 * regions.rank)
        - 1
    )
    boxes = moved_boxes(regions, torch.arange(len(regions)).repeat_interleave(cuts), moves).view(
        len(regions), cuts, *batch.size
    )
    boxes = torch.cat([regions.expand(torch.eye(len(regions)))[:, None], boxes], 1).to(x0.device)
    falls = torch.empty(len(batch), len(regions), 1 + cuts)
    for row in range(len(batch)):
        label, clean = int(found.labels[row]), victim.probabilities(victim(x0[row : row + 1]))
        for region, own in enumerate(boxes):
            p = victim.probabilities(victim(torch.lerp(x0[row], blank[row], own[:, None])))[:, label]
            falls[row, region] = (clean[0, label] - p).cpu()
    after, effects = found.effects.before[:, None, None] - falls, found.effects
    held = (after >= effects.low[:, :, None] - ROUNDING) & (after <= effects.high[:, :, None] + ROUNDING)
    return {"alone": float(held[..., 0].float().mean()), "moved": float(held[..., 1:].float().mean())}


def within(victim: Victim, batch: Batch, seed: int) -> Scores:
    x0 = batch.x.to(victim.device)
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    assert batch.masks is not None
    found: Scores = {}
    for queries in (*WITHIN, BY_RANK[batch.rank - 1].queries):
        specs = f"belief(queries={queries})", f"rise(masks={queries - 1})"
        for name, spec in zip(FEWER, specs, strict=True):
            map_ = parse_method(spec)(victim, batch, batch.y, seed)
            scores = dict(against_truth(map_, batch.masks))
            scores["dice_map"] = overlap(threshold(map_.maps), batch.masks)["dice"]
            for score in ("deletion", "insertion"):
                scores[score] = area(curves(victim, x0, hidden, map_.maps, batch.y, insert=score == "insertion"))
            plain = {score: [round(v, 5) for v in values.tolist()] for score, values in scores.items()}
            found.setdefault(name, {})[str(queries)] = plain
    return found
