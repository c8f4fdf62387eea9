"""The method 'belief': the effect of removing each place on the class's probability, and its uncertainty.

Each pair of queries removes a set of patches and then its complement; `regression` solves all pairs together under a prior that
correlates neighbours. Of several random sets, over grids from coarse to fine, the next pair uses the one that leaves the least
uncertainty. The map is the posterior mean, with its standard deviation. A few more queries remove each region as a whole while
random other places are removed: that keeps the intervals of these mean effects valid where a region's effect is not the sum of
its places. Where a model has several reasons, a region alone can do far less than on average, so each is also removed alone, as
it is and with its edges moved.

Half of an image removed hides most objects, so the pairs say which parts suffice to show an object, and little about the
smallest part that hides it. For objects and for classes of a map, a share of the queries therefore hides patches one by one, the
most promising first; these patches come first in the map, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from scipy.stats import t as student
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.errors import OptionError
from rlab.explanation.base import Drawn, ExplanationTask, Method, random_sets, removed
from rlab.explanation.effects import LEVEL, REGIONS, Effects, interval
from rlab.explanation.erasing import WIDTH, deal, erase
from rlab.explanation.maps import BY_RANK, Cells, even_grid, extent, raise_patches, top_share
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
)  # removals of each region alone, and how far its edges move in all but the first, as a share of its sides
FIRST = 16  # pairs before the belief chooses the next ones
DIRECT, FEWEST = 0.2, 3  # share of queries for direct contrasts of regions; minimum per region
SCARCE = 2  # contrasts, and removals alone, of each region where queries are few
SIZES = (0.05, 0.1, 0.17, 0.25, 0.35, 0.5)  # possible mask sizes of a small image, as shares of its points
ERASED = 0.3  # share of queries that hide patches
HOPE = 0.2  # expected of the most promising patch: by how much it lowers the logarithm of what is shown
NEARLY = 0.9  # the mask is the smallest size with this share of the best gain
BEFORE = (REACHES[1], 1.0)  # length scale and noise before the first answers


@dataclass(frozen=True)
class Belief(Method):
    """`remove` says what replaces removed places: 'blur', 'mean', 'noise', or a filter with its severity."""

    name = "belief"
    queries: int | None = (
        None  # including the clean prediction (default: 552 for signals, 764 for images, 732 for clips)
    )
    remove: str = "blur"
    candidates: int = 4  # random sets per grid to choose each pair from
    erase: float | None = None  # share of queries that hide patches one by one (default: 0.3, but 0 for classes)

    def __post_init__(self) -> None:
        if self.erase is not None and not 0 <= self.erase <= 0.5:
            raise OptionError(f"expected erase of the method 'belief' from 0 to 0.5, got {self.erase}")

    def _steps(self, task: ExplanationTask) -> int:
        """The number of steps that hide a patch."""
        usual, total = 0.0 if isinstance(task.subject, ClassSubject) else ERASED, self._total(task.size)
        share = usual if self.erase is None else self.erase
        return max(0, min(int(share * total), total - _least(task.size))) // WIDTH

    def _total(self, size: tuple[int, ...]) -> int:
        return self.queries or BY_RANK[len(size) - 1].queries + CUTS * len(regions_of(size))

    def _shares(self, size: tuple[int, ...], steps: int = 0) -> tuple[int, int, int]:
        """How many pairs of sets, and of each region direct contrasts and removals alone, beside the steps that hide a patch."""
        total, regions = self._total(size) - WIDTH * steps, len(regions_of(size))
        if total < (least := _least(size)):
            raise OptionError(
                f"expected at least {least} queries of the method 'belief' here, got {total}: raise queries"
            )
        few = total < least + CUTS * regions
        cuts = SCARCE if few else CUTS
        total -= cuts * regions
        contrasts = SCARCE if few else max(FEWEST, int(DIRECT * total) // (2 * regions))
        return (total - 1 - _sizes(size) - 2 * contrasts * regions) // 2, contrasts, cuts

    def draw(self, task: ExplanationTask) -> Drawn:
        cells, regions = BY_RANK[len(task.size) - 1], regions_of(task.size)
        places, blank = even_grid(task.size, cells.places), removed(task, self.remove)
        beliefs = self._measure(task, cells, places, blank)
        at_places = [average(belief) for belief in beliefs]
        means, deviations = (torch.stack(part).float().to(task.x0.device) for part in zip(*at_places, strict=True))
        shares = places.reduce(regions.expand(torch.eye(len(regions)))).double()  # (g, q): share of a place in a region
        direct = self._contrasts(task, cells, regions, blank).double().cpu()
        at_regions = [reconcile(*average(belief, shares), own) for belief, own in zip(beliefs, direct, strict=True)]
        effect, deviation = (torch.stack(part).float() for part in zip(*at_regions, strict=True))
        count = self._shares(task.size, self._steps(task))[2]
        effects = _effects(task, regions, _alone(task, regions, blank, count).cpu())
        width = _quantile(direct.shape[2] - 1 + POOLED) * deviation
        effects = replace(effects, mean=effect, width=width)
        maps = raise_patches(means, places)
        if self._steps(task):
            maps = self._erased(maps, task, blank, cells)
        mask = _sized(maps, task, blank) if _sizes(task.size) else None
        cover = extent(maps, task.x0, task.bounds)
        return Drawn(maps, cover, raise_patches(deviations, places), effects, mask)

    def _erased(self, maps: Tensor, task: ExplanationTask, blank: Tensor, cells: Cells) -> Tensor:
        """The maps (n, *size) with the patches first that hide what is explained."""
        grid, bank = even_grid(task.size, cells.sets[-1]), torch.stack([task.x0, blank], 1)
        hope = grid.reduce(maps).clamp(min=0)
        hope = hope / hope.amax(1, keepdim=True).clamp(min=1e-12) * HOPE  # of the logarithm, like the drops of `erase`
        return deal(maps, grid.expand(erase(task, bank, grid, hope, self._steps(task))))

    def _measure(self, task: ExplanationTask, cells: Cells, places: PatchGrid, blank: Tensor) -> list[list[Hypothesis]]:
        """The hypotheses about each sample after all its pairs."""
        grids = [even_grid(task.size, along) for along in cells.sets]
        overlap = [places.reduce(grid.expand(torch.eye(len(grid)))).double() for grid in grids]  # each (p, q)
        kernels = [kernel(places, reach / cells.sets[-1]) for reach in REACHES]
        before = kernel(places, BEFORE[0] / cells.sets[-1])
        empty, answers = torch.zeros(0, len(places), dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        contrast, drop = [empty] * len(task), [answers] * len(task)
        beliefs: list[list[Hypothesis]] = [[] for _ in range(len(task))]
        total, done = self._shares(task.size, self._steps(task))[0], 0
        while done < total:
            count = min(max(FIRST, done), total - done)
            chosen = []
            for i, belief in enumerate(beliefs):
                best = likeliest(belief) if belief else None
                covariance = best.covariance if best else before
                noise = best.noise if best else BEFORE[1] * float(before.sum()) / 4
                points, rows = self._choose(task.seeds[i], range(done, done + count), grids, overlap, covariance, noise)
                chosen.append(points)
                contrast[i] = torch.cat([contrast[i], rows])
            sets = torch.stack(chosen).to(task.x0.device)
            new = _drops(task, sets, ~sets, blank).double().cpu()
            drop = [torch.cat(pair) for pair in zip(drop, new, strict=True)]
            beliefs = [hypotheses(c, d, kernels) for c, d in zip(contrast, drop, strict=True)]
            done += count
        return beliefs

    def _contrasts(self, task: ExplanationTask, cells: Cells, regions: PatchGrid, blank: Tensor) -> Tensor:
        """(n, g, k): the drop when a whole region is removed, in the context of random sets of other places."""
        count, boxes = self._shares(task.size, self._steps(task))[1], regions.expand(torch.eye(len(regions))).bool()
        grids = [even_grid(task.size, along) for along in cells.sets]
        steps = torch.arange(len(regions) * count)
        beside = []
        for seed in task.seeds.cpu():
            own = [grid.expand(_sets(~seed + index, steps, grid)) for index, grid in enumerate(grids)]
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
        drawn = [_sets(seed.cpu() + index, steps, grid) for index, grid in enumerate(grids)]
        contrasts = [2 * own.double() @ part - 1 for own, part in zip(drawn, overlap, strict=True)]
        for first in range(0, len(steps), each):
            candidates = torch.cat([own[first : first + each] for own in contrasts])
            best, covariance = next_contrast(covariance, noise, candidates)
            grid, row = divmod(best, each)
            sets.append(grids[grid].expand(drawn[grid][first + row]))
            rows.append(candidates[best])
        return torch.stack(sets), torch.stack(rows)


def _sets(seed: Tensor, steps: Tensor, grid: PatchGrid) -> Tensor:
    return random_sets(seed.expand(len(steps)), steps, len(grid))


def regions_of(size: tuple[int, ...]) -> PatchGrid:
    return even_grid(size, BY_RANK[len(size) - 1].regions)


def _least(size: tuple[int, ...]) -> int:
    """The smallest number of queries for a map, the clean prediction included."""
    return 1 + 2 * FIRST + 3 * SCARCE * len(regions_of(size))


def _effects(task: ExplanationTask, regions: PatchGrid, cuts: Tensor) -> Effects:
    """What removing each region alone does; cuts (n, g, k) are the probabilities as it is, then with its edges moved."""
    moved = cuts[:, :, 1:] - cuts[:, :, :1]
    after, low, high = interval(cuts, _quantile(moved.shape[2]) * moved.square().mean(2).sqrt())
    places = [place(regions, index, task.batch.rate) for index in range(len(regions))]
    there = torch.ones(cuts.shape[:2], dtype=torch.bool)
    phrases = tuple(f"{where} alone" for where in places)
    return Effects(REGIONS, tuple((where,) for where in places), phrases, task.before, after, low, high, there)


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
