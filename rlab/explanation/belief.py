"""The map as a belief: what removing each place does to the class's probability, and how sure that is.

Sets of patches are removed, each beside its complement, and all answers are solved together under a prior that ties
neighbours together (`regression`): RISE is the same on random masks, without a prior, a memory or an interval. Of several random
sets, over grids from coarse to fine, the one is asked about that leaves the least uncertainty. The map is the posterior's
mean, its standard deviation stands beside it. Of every region it is measured directly as well what removing the whole of it does,
a few times: that keeps the intervals honest where a region is more than the sum of its places.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.errors import InputError
from rlab.explanation.base import Drawn, ExplanationTask, Method, removed
from rlab.explanation.maps import even_grid, raise_patches, to_unit, top_share
from rlab.explanation.regions import RegionEffects
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
from rlab.explanation.spread import SETTINGS, Spread

FIRST = 16  # pairs asked before the belief says which to ask next
DIRECT, FEWEST = 0.2, 3  # share of the queries for the regions' own contrasts; the fewest of a region
SHARES = (0.2, 0.8)  # of the patches that a set removes; its complement removes the rest
SIZES = (0.05, 0.1, 0.17, 0.25, 0.35, 0.5)  # shares of the points that the mask of a small image may hold
NEARLY = 0.9  # of the best size's gain: the smallest that has as much is the mask
BEFORE = (REACHES[1], 1.0)  # reach and share of noise while nothing is known


@dataclass(frozen=True)
class Cells:
    """How finely each kind of data is asked about where nothing else is said."""

    queries: int
    sets: tuple[int, ...]  # patches along an axis of the sets that are removed, coarse to fine
    places: int  # of the effects
    regions: int  # that a statement is made about
    small: int = 0  # up to this length what looks alike is no guide to a thing's extent: the mask's size is asked for


BY_RANK = (
    Cells(500, (8, 16, 32), 128, 13),
    Cells(700, (7, 10, 14), 28, 4, small=64),
    Cells(700, (3, 4, 6), 9, 2),
)  # from 1


@dataclass(frozen=True)
class Belief(Method):
    """`remove` is what removing means: 'blur', 'mean', 'noise', or a filter with its severity."""

    name = "belief"
    queries: int | None = None  # the clean prediction among them; 500 for signals, 700 for images and clips
    remove: str = "blur"
    candidates: int = 4  # sets of each grid that the next pair is chosen from; 1 asks about all that are drawn

    def most(self, size: tuple[int, ...]) -> int:
        pairs, contrasts = self._shares(size)
        return 1 + _sizes(size) + 2 * pairs + 2 * contrasts * len(_regions(size))

    def _shares(self, size: tuple[int, ...]) -> tuple[int, int]:
        """Pairs of sets, and direct contrasts of each region."""
        total, regions = self.queries or BY_RANK[len(size) - 1].queries, len(_regions(size))
        least = 1 + 2 * FIRST + 2 * FEWEST * regions
        if total < least:
            raise InputError(
                f"expected at least {least} queries of the method 'belief' here, got {total}: raise queries"
            )
        contrasts = max(FEWEST, int(DIRECT * total) // (2 * regions))
        return (total - 1 - _sizes(size) - 2 * contrasts * regions) // 2, contrasts

    def draw(self, task: ExplanationTask) -> Tensor:
        return self.explain(task).maps

    def explain(self, task: ExplanationTask) -> Drawn:
        cells, regions = BY_RANK[len(task.size) - 1], _regions(task.size)
        places, blank = even_grid(task.size, cells.places), removed(task, self.remove)
        believed = self._ask(task, cells, places, blank)
        at_places = [average(found) for found in believed]
        means, deviations = (torch.stack(part).float().to(task.x0.device) for part in zip(*at_places, strict=True))
        shares = places.reduce(regions.expand(torch.eye(len(regions)))).double()  # (g, q): of a place in a region
        direct = self._contrasts(task, cells, regions, blank).double().cpu()
        at_regions = [reconcile(*average(found, shares), own) for found, own in zip(believed, direct, strict=True)]
        effect, deviation = (torch.stack(part).float() for part in zip(*at_regions, strict=True))
        effects = RegionEffects(regions, effect, deviation, direct.shape[2] - 1 + POOLED)
        maps = raise_patches(means, places)
        mask = _sized(maps, task, blank) if _sizes(task.size) else None
        return Drawn(maps, _extent(maps, task), raise_patches(deviations, places), effects, mask)

    def _ask(self, task: ExplanationTask, cells: Cells, places: PatchGrid, blank: Tensor) -> list[list[Hypothesis]]:
        """What is believed of each sample after all its pairs."""
        grids = [even_grid(task.size, along) for along in cells.sets]
        overlap = [places.reduce(grid.expand(torch.eye(len(grid)))).double() for grid in grids]  # each (p, q)
        kernels = [kernel(places, reach / cells.sets[-1]) for reach in REACHES]
        before = kernel(places, BEFORE[0] / cells.sets[-1])
        empty, answers = torch.zeros(0, len(places), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        contrast, drop = [empty] * len(task), [answers] * len(task)
        believed: list[list[Hypothesis]] = [[] for _ in range(len(task))]
        total, done = self._shares(task.size)[0], 0
        while done < total:
            count = min(max(FIRST, done), total - done)
            chosen = []
            for i, found in enumerate(believed):
                best = likeliest(found) if found else None
                covariance = best.covariance if best else before
                noise = best.noise if best else BEFORE[1] * float(before.sum()) / 4
                points, rows = self._choose(task.seeds[i], range(done, done + count), grids, overlap, covariance, noise)
                chosen.append(points)
                contrast[i] = torch.cat([contrast[i], rows])
            sets = torch.stack(chosen).to(task.x0.device)
            new = _drops(task, sets, ~sets, blank).double().cpu()
            drop = [torch.cat(pair) for pair in zip(drop, new, strict=True)]
            believed = [hypotheses(c, d, kernels) for c, d in zip(contrast, drop, strict=True)]
            done += count
        return believed

    def _contrasts(self, task: ExplanationTask, cells: Cells, regions: PatchGrid, blank: Tensor) -> Tensor:
        """(n, g, k): the fall when a region is removed as a whole, beside random sets of other places."""
        count, boxes = self._shares(task.size)[1], regions.expand(torch.eye(len(regions))).bool()
        grids = [even_grid(task.size, along) for along in cells.sets]
        steps = torch.arange(len(regions) * count)
        beside = []
        for seed in task.seeds.cpu():
            own = [grid.expand(_random_sets(~seed + index, steps, len(grid))) for index, grid in enumerate(grids)]
            beside.append(torch.stack([own[step % len(grids)][step] for step in steps.tolist()]))
        context, box = torch.stack(beside), boxes.repeat_interleave(count, 0)
        drops = _drops(task, (context | box).to(blank.device), (context & ~box).to(blank.device), blank)
        return drops.view(len(task), len(regions), count)

    def _choose(
        self,
        seed: Tensor,
        pairs: range,
        grids: list[PatchGrid],
        overlap: list[Tensor],
        covariance: Tensor,
        noise: float,
    ) -> tuple[Tensor, Tensor]:
        """The sets to remove next, as points (m, *size) bool, and their contrasts (m, q)."""
        sets, rows, each = [], [], self.candidates
        steps = torch.arange(pairs.start * each, pairs.stop * each)
        drawn = [_random_sets(seed.cpu() + index, steps, len(grid)) for index, grid in enumerate(grids)]
        contrasts = [2 * own.double() @ part - 1 for own, part in zip(drawn, overlap, strict=True)]
        for first in range(0, len(steps), each):
            candidates = torch.cat([own[first : first + each] for own in contrasts])
            best, covariance = next_contrast(covariance, noise, candidates)
            grid, row = divmod(best, each)
            sets.append(grids[grid].expand(drawn[grid][first + row]))
            rows.append(candidates[best])
        return torch.stack(sets), torch.stack(rows)


def _random_sets(seed: Tensor, steps: Tensor, patches: int) -> Tensor:
    """(m, p) bool: each with a fifth to four fifths of the patches."""
    low, high = SHARES
    draw = uniform(seed.expand(len(steps)), steps, patches + 1)
    return draw[:, 1:] < low + (high - low) * draw[:, :1]


def _regions(size: tuple[int, ...]) -> PatchGrid:
    return even_grid(size, BY_RANK[len(size) - 1].regions)


def _sizes(size: tuple[int, ...]) -> int:
    """Queries for the mask's size: every size removed, and all but it."""
    return 2 * len(SIZES) if max(size) <= BY_RANK[len(size) - 1].small else 0


def _sized(maps: Tensor, task: ExplanationTask, blank: Tensor) -> Tensor:
    """(n, *size) bool: of the highest points as few as do nearly as much as any number when removed, and when shown alone."""
    sets = torch.stack([top_share(maps, share) for share in SIZES], 1)
    gain = _drops(task, sets, ~sets, blank)
    best = gain.amax(1, keepdim=True)
    first = (gain >= best - (1 - NEARLY) * best.abs()).float().argmax(1)
    return sets[torch.arange(len(sets), device=sets.device), first]


def _drops(task: ExplanationTask, sets: Tensor, others: Tensor, blank: Tensor) -> Tensor:
    """Sets (n, m, *size) bool, both -> (n, m): by how much the class is likelier without the others than without the sets."""
    both = torch.empty(2, *sets.shape[:2], device=sets.device)
    for side, hidden in enumerate((sets, others)):
        for samples, items in task.questions(sets.shape[1]):
            x = torch.where(hidden[samples, items][:, None], blank[samples], task.x0[samples])
            both[side, samples, items] = task.victim.probabilities(task.ask(x, samples))
    return both[1] - both[0]


def _extent(maps: Tensor, task: ExplanationTask) -> Tensor:
    """What the mask is cut from: the helping places, over what looks alike and lies near where that means something."""
    settings = SETTINGS[len(task.size) - 1]
    cover = to_unit(maps.clamp(min=0)) ** settings.lift
    return to_unit(Spread()(cover, task.x0, task.bounds)) ** settings.lift if settings.spread else cover
