"""The method 'belief': the effect of removing each place on the class's probability, and its uncertainty.

Each pair of queries removes a set of patches and then its complement; `regression` solves all pairs together under a prior that
correlates neighbours. Of several random sets, over grids from coarse to fine, the next pair uses the one that leaves the least
uncertainty. The map is the posterior mean, with its standard deviation. A few more queries remove each region as a whole while
random other places are removed: that keeps the intervals of these mean effects valid where a region's effect is not the sum of
its places. Where a model has several reasons, a region alone can do far less than on average, so each is also removed alone, as
it is and with its edges moved.

Half of an image removed hides most objects, so the pairs say which parts suffice to show an object, and little about the
smallest part that hides it. For objects and for classes of a map, a share of the queries therefore hides patches one by one, the
most promising first (`erasing`); these patches come first in the map, in this order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from scipy.stats import t as student
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.errors import OptionError
from rlab.explanation.base import Count, Drawn, ExplanationTask, random_sets, removed
from rlab.explanation.effects import LEVEL, REGIONS, Effects
from rlab.explanation.erasing import WIDTH, deal, erase_patches
from rlab.explanation.maps import BY_RANK, even_grid, extent, raise_patches, top_share
from rlab.explanation.regression import (
    POOLED,
    REACHES,
    Hypothesis,
    average,
    hypotheses,
    kernel,
    likeliest,
    next_contrast,
    reconcile,
)
from rlab.explanation.subject import ClassSubject

CUTS, MOVED = (
    4,
    0.1,
)  # removals of each region alone, and how far edges move in all but the first, as a share of its sides
FIRST = 16  # pairs before the belief chooses the next ones
DIRECT, FEWEST = 0.2, 3  # share of queries for direct contrasts of regions; minimum per region
SCARCE = 2  # contrasts, and removals alone, of each region where queries are few
SIZES = (0.05, 0.1, 0.17, 0.25, 0.35, 0.5)  # possible mask sizes of a small image, as shares of its points
ERASED = 0.3  # share of queries that hide patches
HOPE = 0.2  # expected of the most promising patch: by how much it lowers the logarithm of what is shown
NEARLY = 0.9  # the mask is the smallest size with this share of the best gain
BEFORE = (REACHES[1], 1.0)  # length scale and noise before the first answers


def belief(
    task: ExplanationTask,
    *,
    queries: Count
    | None = None,  # including the clean prediction (default: 552 for signals, 764 for images, 732 for clips)
    remove: str = "blur",  # or 'mean', 'noise', a filter with its severity
    candidates: Count = 4,  # random sets per grid to choose each pair from
    erase: Annotated[float, Field(ge=0, le=0.5)]
    | None = None,  # share that hides patches (default: 0.3, but 0 for classes)
) -> Drawn:
    """The mean effect of removing each place, with its deviation, and the effects of regions."""
    cells, regions, plan = BY_RANK[len(task.size) - 1], regions_of(task.size), Plan.of(task, queries, erase)
    places, blank = even_grid(task.size, cells.places), removed(task, remove)
    grids, boxes = [even_grid(task.size, along) for along in cells.sets], regions.expand(torch.eye(len(regions)))
    beliefs = _measure(task, plan.pairs, candidates, grids, places, blank)
    means, deviations = _stacked([average(each) for each in beliefs])
    direct = _contrasts(task, plan.contrasts, grids, boxes.bool(), blank).double().cpu()
    shares = places.reduce(boxes).double()  # (g, q): share of a place in a region
    at_regions = [average(each, shares) for each in beliefs]
    effect, deviation = _stacked([reconcile(*each, own) for each, own in zip(at_regions, direct, strict=True)])
    width = _quantile(plan.contrasts - 1 + POOLED) * deviation
    effects = replace(_effects(task, regions, _alone(task, regions, blank, plan.cuts).cpu()), mean=effect, width=width)
    maps = raise_patches(means.to(task.x0.device), places)
    if plan.steps:
        maps = _erased(maps, task, blank, grids[-1], plan.steps)
    mask = _sized(maps, task, blank) if _sizes(task.size) else None
    deviations = raise_patches(deviations, places)
    return Drawn(maps, extent(maps, task.x0, task.batch.bounds), mask, deviations, effects)


@dataclass(frozen=True)
class Plan:
    """How many queries each part of the method has."""

    pairs: int  # of a random set and its complement
    contrasts: int  # direct contrasts of each region, two queries each
    cuts: int  # removals of each region alone
    steps: int  # that hide a patch

    @classmethod
    def of(cls, task: ExplanationTask, queries: int | None, erase: float | None) -> Plan:
        size, regions = task.size, len(regions_of(task.size))
        least = 1 + 2 * FIRST + 3 * SCARCE * regions
        total = queries or BY_RANK[len(size) - 1].queries + CUTS * regions
        usual = 0.0 if isinstance(task.subject, ClassSubject) else ERASED
        steps = max(0, min(int((usual if erase is None else erase) * total), total - least)) // WIDTH
        total -= WIDTH * steps
        if total < least:
            here = f"expected at least {least} queries of the method 'belief' here"
            raise OptionError(f"{here}, got {total}: raise queries")
        few = total < least + CUTS * regions
        cuts = SCARCE if few else CUTS
        total -= cuts * regions
        contrasts = SCARCE if few else max(FEWEST, int(DIRECT * total) // (2 * regions))
        return cls((total - 1 - _sizes(size) - 2 * contrasts * regions) // 2, contrasts, cuts, steps)


def _stacked(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Means and deviations of samples, as float32."""
    mean, deviation = (torch.stack(part).float() for part in zip(*parts, strict=True))
    return mean, deviation


def _erased(maps: Tensor, task: ExplanationTask, blank: Tensor, grid: PatchGrid, steps: int) -> Tensor:
    """The maps (n, *size) with the patches first that hide what is explained."""
    hope = grid.reduce(maps).clamp(min=0)
    hope = hope / hope.amax(1, keepdim=True).clamp(min=1e-12) * HOPE  # of the logarithm, like the drops of erasing
    return deal(maps, grid.expand(erase_patches(task, torch.stack([task.x0, blank], 1), grid, hope, steps)))


def _measure(
    task: ExplanationTask, pairs: int, candidates: int, grids: list[PatchGrid], places: PatchGrid, blank: Tensor
) -> list[list[Hypothesis]]:
    """The hypotheses about each sample after all its pairs."""
    overlap = [places.reduce(grid.expand(torch.eye(len(grid)))).double() for grid in grids]  # each (p, q)
    finest = BY_RANK[len(task.size) - 1].sets[-1]
    kernels, before = [kernel(places, reach / finest) for reach in REACHES], kernel(places, BEFORE[0] / finest)
    empty, answers = torch.zeros(0, len(places), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
    contrast, drop = [empty] * len(task), [answers] * len(task)
    beliefs: list[list[Hypothesis]] = [[] for _ in range(len(task))]
    done = 0
    while done < pairs:
        count = min(max(FIRST, done), pairs - done)
        chosen = []
        for i, belief in enumerate(beliefs):
            best = likeliest(belief) if belief else None
            covariance = best.covariance if best else before
            noise = best.noise if best else BEFORE[1] * float(before.sum()) / 4
            steps = torch.arange(done * candidates, (done + count) * candidates)
            drawn = [_sets(task.seeds[i].cpu() + index, steps, grid) for index, grid in enumerate(grids)]
            points, rows = _choose(drawn, candidates, grids, overlap, covariance, noise)
            chosen.append(points)
            contrast[i] = torch.cat([contrast[i], rows])
        sets = torch.stack(chosen).to(task.x0.device)
        new = _drops(task, sets, ~sets, blank).double().cpu()
        drop = [torch.cat(pair) for pair in zip(drop, new, strict=True)]
        beliefs = [hypotheses(c, d, kernels) for c, d in zip(contrast, drop, strict=True)]
        done += count
    return beliefs


def _choose(
    drawn: list[Tensor],
    candidates: int,
    grids: list[PatchGrid],
    overlap: list[Tensor],
    covariance: Tensor,
    noise: float,
) -> tuple[Tensor, Tensor]:
    """Of the sets drawn over each grid, those to remove next, as points (m, *size) bool, and their contrasts (m, q)."""
    sets, rows = [], []
    contrasts = [2 * own.double() @ part - 1 for own, part in zip(drawn, overlap, strict=True)]
    for first in range(0, len(drawn[0]), candidates):
        among = torch.cat([own[first : first + candidates] for own in contrasts])
        best, covariance = next_contrast(covariance, noise, among)
        grid, row = divmod(best, candidates)
        sets.append(grids[grid].expand(drawn[grid][first + row]))
        rows.append(among[best])
    return torch.stack(sets), torch.stack(rows)


def _contrasts(task: ExplanationTask, count: int, grids: list[PatchGrid], boxes: Tensor, blank: Tensor) -> Tensor:
    """(n, g, count): the drop when a whole region is removed, in the context of random sets of other places."""
    steps, beside = torch.arange(len(boxes) * count), []
    for seed in task.seeds.cpu():
        own = [grid.expand(_sets(~seed + index, steps, grid)) for index, grid in enumerate(grids)]
        beside.append(torch.stack([own[step % len(grids)][step] for step in steps.tolist()]))
    context, box = torch.stack(beside), boxes.repeat_interleave(count, 0)
    drops = _drops(task, (context | box).to(blank.device), (context & ~box).to(blank.device), blank)
    return drops.view(len(task), len(boxes), count)


def _sets(seed: Tensor, steps: Tensor, grid: PatchGrid) -> Tensor:
    return random_sets(seed.expand(len(steps)), steps, len(grid))


def regions_of(size: tuple[int, ...]) -> PatchGrid:
    return even_grid(size, BY_RANK[len(size) - 1].regions)


def _effects(task: ExplanationTask, regions: PatchGrid, cuts: Tensor) -> Effects:
    """What removing each region alone does; cuts (n, g, k) are the probabilities as it is, then with its edges moved."""
    after, moved = cuts[:, :, 0], cuts[:, :, 1:] - cuts[:, :, :1]
    width = _quantile(moved.shape[2]) * moved.square().mean(2).sqrt()
    parts = tuple((place(regions, index, task.batch.rate),) for index in range(len(regions)))
    low, high = (after - width).clamp(min=0), (after + width).clamp(max=1)
    return Effects(REGIONS, parts, task.before, after, low, high, torch.ones_like(after, dtype=torch.bool))


def _quantile(freedom: float) -> float:
    """Half the width of an interval, in deviations; few degrees of freedom mean longer tails."""
    return float(student.ppf(0.5 + LEVEL / 2, freedom))


def place(grid: PatchGrid, index: int, rate: float | None = None) -> str:
    """A region in words: seconds of a signal, rows and columns of an image, frames of a clip."""
    box = grid.box(index)
    if len(box) == 1 and rate:
        return f"{box[0].start / rate:.2f}-{box[0].stop / rate:.2f} s"
    names = ("points",) if len(box) == 1 else ("frames", "rows", "columns")[-len(box) :]
    return ", ".join(f"{name} {cut.start}-{cut.stop - 1}" for name, cut in zip(names, box, strict=True))


def _alone(task: ExplanationTask, regions: PatchGrid, blank: Tensor, cuts: int) -> Tensor:
    """(n, g, cuts): what is left of the class when one region alone is removed: as it is, then with its edges moved at random."""

    def answer(samples: Tensor, items: Tensor) -> Tensor:
        moves = 2 * uniform(~task.seeds[samples], items, 2 * regions.rank) - 1
        boxes = moved_boxes(regions, items // cuts, moves * (items % cuts > 0)[:, None])
        return task.probability(torch.lerp(task.x0[samples], blank[samples], boxes[:, None]), samples)

    return task.answers(len(regions) * cuts, answer).view(len(task), len(regions), cuts)


def moved_boxes(grid: PatchGrid, patches: Tensor, moves: Tensor) -> Tensor:
    """(m, *size) in [0, 1]: the boxes of patches (m,) whose starts and stops, axis by axis, go by moves (m, 2 * rank) of MOVED."""
    boxes = torch.ones(len(patches), *(1,) * grid.rank, device=patches.device)
    places = [grid.box(patch) for patch in patches.tolist()]
    for axis, length in enumerate(grid.size):
        ends = torch.tensor([(box[axis].start, box[axis].stop) for box in places], device=patches.device)
        start, stop = (ends + MOVED * (ends[:, 1:] - ends[:, :1]) * moves[:, 2 * axis : 2 * axis + 2]).T[:, :, None]
        at = torch.arange(length, device=patches.device)
        inside = (torch.minimum(at + 1, stop) - torch.maximum(at, start)).clamp(0, 1)  # of each point
        boxes = boxes * inside.view(len(patches), *(length if i == axis else 1 for i in range(grid.rank)))
    return boxes


def _sizes(size: tuple[int, ...]) -> int:
    """The number of queries for the mask's size: each size removed, and everything else removed."""
    return 2 * len(SIZES) if max(size) <= BY_RANK[len(size) - 1].small else 0


def _sized(maps: Tensor, task: ExplanationTask, blank: Tensor) -> Tensor:
    """(n, *size) bool: the fewest highest points with nearly the best gain when removed and when shown alone."""
    sets = torch.stack([top_share(maps, share) for share in SIZES], 1)
    gain = _drops(task, sets, ~sets, blank)
    best = gain.amax(1, keepdim=True)
    first = (gain >= best - (1 - NEARLY) * best.abs()).float().argmax(1)
    return sets[torch.arange(len(sets), device=sets.device), first]


def _drops(task: ExplanationTask, sets: Tensor, others: Tensor, blank: Tensor) -> Tensor:
    """Sets and others (n, m, *size) bool -> (n, m): the class's probability without the others minus that without the sets."""

    def without(points: Tensor) -> Tensor:
        def answer(samples: Tensor, items: Tensor) -> Tensor:
            inside = points[samples, items][:, None]
            return task.probability(torch.where(inside, blank[samples], task.x0[samples]), samples)

        return task.answers(points.shape[1], answer)

    first = without(sets)
    return without(others) - first
