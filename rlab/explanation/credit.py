"""Our map: what the model's decision rests on, from answers alone.

1. Influence: every question hides a random set of patches, over several grids, and gives one equation: the class's score is
   a constant minus the influence summed over what was hidden. Under a Gaussian-process prior all of them are solved at
   once, which takes far fewer questions than averaging masks does.
2. Adversarial erasing (Wei et al. 2017, https://arxiv.org/abs/1703.08448), led by the influence: patches are hidden past the
   flip until the class is all but gone, and a second round may not reuse the first's patches.
3. The influence spread over what looks alike, by nothing but the input itself, says how far the decision's object reaches:
   the mask is cut from it.
4. The heat map holds the same values, dealt out anew: the highest go to the patches that were erased, in the order they
   were taken, the rest stay in the order of the spread influence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.errors import InputError
from rlab.explanation.base import Drawn, ExplanationTask, Method, hiding_bank
from rlab.explanation.maps import even_grid, raise_patches, to_unit
from rlab.explanation.spread import SETTINGS, Spread

LEAST = -12.0  # log-probabilities below are all the same to us
NOISE = 2.0  # what sets do to each other beyond adding up, against the variance that the influence explains


@dataclass(frozen=True)
class RankSettings:
    """What suits a kind of data where nothing else is asked for."""

    grids: tuple[int, ...]  # patches along an axis, of the sets
    fine: int  # of what is erased
    cells: int  # of the influence
    reach: float


BY_RANK = (
    RankSettings((8, 16, 32), 32, 128, 0.08),
    RankSettings((7, 10, 14), 14, 28, 0.1),
    RankSettings((3, 4, 6), 6, 9, 0.15),
)  # from 1


def fine_grid(size: tuple[int, ...]) -> PatchGrid:
    return even_grid(size, BY_RANK[len(size) - 1].fine)


@dataclass(frozen=True)
class AdversarialErasing:
    """At every step the `width` most promising patches are tried, one query each, and the best of them is hidden for good.

    A patch's credit is how sure the model still was when it was taken.
    """

    until: float = 0.02  # the class's probability at which it ends
    width: int = 12
    steps: int = 28  # at most

    def __call__(self, task: ExplanationTask, bank: Tensor, grid: PatchGrid, promise: Tensor, banned: Tensor) -> Tensor:
        """Promise (n, p), patches that may not be used (n, p) bool -> credit (n, p), 0 where a patch was not taken."""
        promise, credit, score = promise.clone(), torch.zeros_like(promise), task.clean_score
        taken = torch.zeros_like(banned)
        width = min(self.width, len(grid))
        for _ in range(self.steps):
            live = ((score > math.log(self.until)) & ~(taken | banned).all(1)).nonzero().flatten()
            if not len(live):
                break
            allowed = promise[live].masked_fill((taken | banned)[live], -torch.inf)
            hope, tried = allowed.topk(width, 1)
            samples = live.repeat_interleave(width)
            hidden = taken[samples].scatter(1, tried.flatten()[:, None], True)
            answer = task.ask(render(bank[samples], hidden.long(), grid), samples).view_as(tried)
            drop = (score[live, None] - answer).masked_fill(hope == -torch.inf, -torch.inf)
            promise[live[:, None], tried] = drop  # what was measured stands until it is measured again
            best = drop.argmax(1, keepdim=True)
            patch = tried.gather(1, best).squeeze(1)
            credit[live, patch] = score[live].exp()
            taken[live, patch] = True
            score[live] = answer.gather(1, best).squeeze(1)
        return credit


@dataclass(frozen=True)
class Credit(Method):
    """`blank` is the filter that hides a patch; None is a Gaussian blur of a sixteenth of the longest axis."""

    name = "credit"
    flips = True
    sets: int = 900  # questions for the influence
    episodes: int = 2  # rounds of erasing
    erasing: AdversarialErasing = field(default_factory=AdversarialErasing)
    blank: str | None = None
    spread: Spread | None = field(default_factory=Spread)
    reach: float | None = None  # how far influence carries, as a share of each axis
    lift: float | None = None  # power that values are raised to, before and after spreading; below 1 widens the mask

    def __post_init__(self) -> None:
        if self.sets < 6:
            raise InputError(f"expected at least 6 sets to ask about, got {self.sets}")

    def most(self, size: tuple[int, ...]) -> int:
        erased = self.erasing.steps * min(self.erasing.width, len(fine_grid(size)))
        return 1 + self.sets + self.episodes * erased

    def draw(self, task: ExplanationTask) -> Tensor:
        return self.explain(task).maps

    def explain(self, task: ExplanationTask) -> Drawn:
        settings, spreading = BY_RANK[len(task.size) - 1], SETTINGS[len(task.size) - 1]
        bank = hiding_bank(task.x0, task.bounds, task.seeds.tolist(), self.blank)
        cells = even_grid(task.size, settings.cells)
        influence = self._influence(task, bank, cells, settings)
        credit = self._credit(task, bank, raise_patches(influence, cells), fine_grid(task.size))
        lift = self.lift or spreading.lift
        cover = to_unit(raise_patches(influence.clamp(min=0), cells)) ** lift
        if self.spread is not None and spreading.spread:
            cover = to_unit(self.spread(cover, task.x0, task.bounds)) ** lift
        return Drawn(deal(cover, credit), cover)

    def _influence(self, task: ExplanationTask, bank: Tensor, cells: PatchGrid, settings: RankSettings) -> Tensor:
        """(n, q): what hiding each cell costs the class; sets over several grids share it."""
        hidden, scores, first = [], [], 0
        for index, along in enumerate(settings.grids):
            grid = even_grid(task.size, along)
            count = self.sets // len(settings.grids) + (index < self.sets % len(settings.grids))
            sets = random_sets(task.seeds, first, count, len(grid))
            first += count
            asked = torch.empty(sets.shape[:2], device=sets.device)
            for samples, which in task.questions(count):
                hidden_x = render(bank[samples], sets[samples, which].long(), grid)
                asked[samples, which] = task.ask(hidden_x, samples)
            scores.append(asked)
            hidden.append(cells.reduce(grid.expand(sets.float())))
        return solve_influence(torch.cat(hidden, 1), torch.cat(scores, 1), kernel(cells, self.reach or settings.reach))

    def _credit(self, task: ExplanationTask, bank: Tensor, influence: Tensor, grid: PatchGrid) -> Tensor:
        """(n, *size): what was erased, a later round at half the credit; 0 elsewhere."""
        promise = grid.reduce(influence)
        used, total = torch.zeros_like(promise, dtype=torch.bool), torch.zeros_like(promise)
        for number in range(self.episodes):
            earned = self.erasing(task, bank, grid, promise, used)
            total += earned * 0.5**number
            used |= earned > 0
        return grid.expand(total)


def random_sets(seeds: Tensor, first: int, count: int, patches: int) -> Tensor:
    """(n, count, p) bool: pairs of a set and its complement; a set holds a fifth to four fifths of the patches."""
    pairs = torch.arange(first, first + (count + 1) // 2, device=seeds.device)
    draw = uniform(seeds.repeat_interleave(len(pairs)), pairs.repeat(len(seeds)), patches + 1)
    chosen = draw[:, 1:] < 0.2 + 0.6 * draw[:, :1]
    return torch.stack([chosen, ~chosen], 1).view(len(seeds), -1, patches)[:, :count]


def kernel(cells: PatchGrid, reach: float) -> Tensor:
    """(q, q): how alike the influence of two cells is thought to be before any answer, one at equal places."""
    boxes = [[(cut.start + cut.stop) / 2 for cut in cells.box(i)] for i in range(len(cells))]
    at = torch.tensor(boxes, dtype=torch.float64) / torch.tensor(cells.size, dtype=torch.float64)
    return torch.exp(-0.5 * (torch.cdist(at, at) / reach) ** 2)


def solve_influence(hidden: Tensor, scores: Tensor, kernel: Tensor) -> Tensor:
    """Shares of cells hidden (n, m, q), scores (n, m), prior covariance (q, q) -> (n, q): what hiding each costs."""
    kernel, solved = kernel.to(hidden.device), []
    for parts, answers in zip(hidden, scores, strict=True):
        a = parts.double() - parts.double().mean(0)
        y = answers.double().clamp(min=LEAST)
        ak = a @ kernel
        c = ak @ a.T
        c.diagonal().add_(NOISE * c.diagonal().mean().clamp(min=1e-12))
        solved.append(-(ak.T @ torch.linalg.solve(c, y - y.mean())).float())
    return torch.stack(solved)


def deal(cover: Tensor, credit: Tensor) -> Tensor:
    """(n, *size) both: the values of `cover` given out anew, highest first to the points by credit, then by cover."""
    values, earned = cover.flatten(1), credit.flatten(1)
    by_cover = values.argsort(dim=1, descending=True, stable=True)
    by_credit = earned.gather(1, by_cover).argsort(dim=1, descending=True, stable=True)
    order = by_cover.gather(1, by_credit)
    return torch.empty_like(values).scatter_(1, order, values.gather(1, by_cover)).view_as(cover)
