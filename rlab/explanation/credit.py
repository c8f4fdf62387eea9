"""The method 'credit': what a decision depends on, from scores alone.

1. Influence: each query hides a random set of patches, over several grids, and gives one equation: the class's score is a
   constant minus the influence summed over the hidden places. A Gaussian-process prior solves all equations together.
2. Adversarial erasing (Wei et al. 2017, https://arxiv.org/abs/1703.08448), guided by the influence: it hides patches past the
   flip until the class is almost gone. A second round must use other patches.
3. The influence, spread over parts of the input that look alike, gives the extent of the object and so the mask.
4. The map holds the values of this extent in a new order: the highest go to the erased patches, in the order of erasing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.errors import OptionError
from rlab.explanation.base import Drawn, ExplanationTask, Method, random_sets
from rlab.explanation.maps import BY_RANK, Cells, even_grid, extent, hiding_bank, raise_patches
from rlab.explanation.regression import kernel

LEAST = -12.0  # log-probabilities are clipped here
NOISE = 2.0  # variance of interactions, relative to the variance that the influence explains


def fine_grid(size: tuple[int, ...]) -> PatchGrid:
    """The patches that are erased."""
    return even_grid(size, BY_RANK[len(size) - 1].sets[-1])


@dataclass(frozen=True)
class Credit(Method):
    """`blank` is the filter that hides patches (None: a Gaussian blur of a sixteenth of the longest axis)."""

    name = "credit"
    flips = True
    sets: int = 900  # queries for the influence
    episodes: int = 2  # rounds of erasing
    until: float = 0.02  # erasing stops at this probability of the class
    width: int = 12  # patches tried in each step of erasing
    steps: int = 28  # maximum per round of erasing
    blank: str | None = None

    def __post_init__(self) -> None:
        if self.sets < 6:
            raise OptionError(f"expected at least 6 sets of the method 'credit', got {self.sets}")
        if not 0 < self.until < 1:
            raise OptionError(f"expected until of the method 'credit' above 0 and below 1, got {self.until}")

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + self.sets + self.episodes * self.steps * min(self.width, len(fine_grid(size)))

    def draw(self, task: ExplanationTask) -> Drawn:
        settings = BY_RANK[len(task.size) - 1]
        bank = hiding_bank(task.x0, task.bounds, task.seeds.tolist(), self.blank)
        cells = even_grid(task.size, settings.places)
        influence = self._influence(task, bank, cells, settings)
        credit = self._credit(task, bank, raise_patches(influence, cells), fine_grid(task.size))
        cover = extent(raise_patches(influence.clamp(min=0), cells), task.x0, task.bounds)
        return Drawn(deal(cover, credit), cover)

    def _influence(self, task: ExplanationTask, bank: Tensor, cells: PatchGrid, settings: Cells) -> Tensor:
        """(n, q): the drop of the class's score for each hidden cell, from sets over several grids."""
        hidden, scores, first = [], [], 0
        for index, along in enumerate(settings.sets):
            grid = even_grid(task.size, along)
            count = self.sets // len(settings.sets) + (index < self.sets % len(settings.sets))
            sets = paired_sets(task.seeds, first, count, len(grid))
            first += count

            def answer(samples: Tensor, which: Tensor, sets: Tensor = sets, grid: PatchGrid = grid) -> Tensor:
                return task.query(render(bank[samples], sets[samples, which].long(), grid), samples)

            scores.append(task.answers(count, answer))
            hidden.append(cells.reduce(grid.expand(sets.float())))
        return solve_influence(torch.cat(hidden, 1), torch.cat(scores, 1), kernel(cells, settings.reach))

    def _credit(self, task: ExplanationTask, bank: Tensor, influence: Tensor, grid: PatchGrid) -> Tensor:
        """(n, *size): credit of erased patches, halved in each later round; 0 elsewhere."""
        promise = grid.reduce(influence)
        used, total = torch.zeros_like(promise, dtype=torch.bool), torch.zeros_like(promise)
        for number in range(self.episodes):
            earned = Erasing(self.width, self.steps, self.until)(task, bank, grid, promise, used)
            total += earned * 0.5**number
            used |= earned > 0
        return grid.expand(total)


def paired_sets(seeds: Tensor, first: int, count: int, patches: int) -> Tensor:
    """(n, count, p) bool: pairs of a random set and its complement."""
    pairs = torch.arange(first, first + (count + 1) // 2, device=seeds.device)
    chosen = random_sets(seeds.repeat_interleave(len(pairs)), pairs.repeat(len(seeds)), patches)
    return torch.stack([chosen, ~chosen], 1).view(len(seeds), -1, patches)[:, :count]


def solve_influence(hidden: Tensor, scores: Tensor, kernel: Tensor) -> Tensor:
    """Hidden shares of cells (n, m, q), scores (n, m), prior covariance (q, q) -> influence (n, q)."""
    kernel, solved = kernel.to(hidden.device), []
    for parts, answers in zip(hidden, scores, strict=True):
        a = parts.double() - parts.double().mean(0)
        y = answers.double().clamp(min=LEAST)
        ak = a @ kernel
        c = ak @ a.T
        c.diagonal().add_(NOISE * c.diagonal().mean().clamp(min=1e-12))
        solved.append(-(ak.T @ torch.linalg.solve(c, y - y.mean())).float())
    return torch.stack(solved)


@dataclass(frozen=True)
class Erasing:
    """How to erase: up to `steps` steps of `width` queries each, until less than `until` is left."""

    width: int
    steps: int
    until: float
    least: float = -math.inf  # a step hides nothing if no patch lowers the score by more

    def __call__(self, task: ExplanationTask, bank: Tensor, grid: PatchGrid, promise: Tensor, banned: Tensor) -> Tensor:
        """Bank (n, 2, c, *size), promise (n, p), banned patches (n, p) bool -> credit (n, p), 0 for patches not hidden.

        Each step tries the most promising patches, with one query each, and hides the best permanently. Its credit is the
        class's probability, or the share of the object shown, just before.
        """
        promise, credit, score = promise.clone(), torch.zeros_like(promise), task.clean_score
        taken, width = torch.zeros_like(banned), min(self.width, len(grid))
        for _ in range(self.steps):
            live = ((score > math.log(self.until)) & ~(taken | banned).all(1)).nonzero().flatten()
            if not len(live):
                break
            hope, tried = promise[live].masked_fill((taken | banned)[live], -torch.inf).topk(width, 1)
            samples = live.repeat_interleave(width)
            hidden = taken[samples].scatter(1, tried.flatten()[:, None], True)
            answer = task.query(render(bank[samples], hidden.long(), grid), samples).view_as(tried)
            drop = (score[live, None] - answer).masked_fill(hope == -torch.inf, -torch.inf)
            promise[live[:, None], tried] = drop  # a measurement stays valid until the next one
            best = drop.argmax(1, keepdim=True)
            useful = drop.gather(1, best).squeeze(1) > self.least
            rows, patch = live[useful], tried.gather(1, best).squeeze(1)[useful]
            credit[rows, patch] = score[rows].exp()
            taken[rows, patch] = True
            score[rows] = answer.gather(1, best).squeeze(1)[useful]
        return credit


def deal(cover: Tensor, credit: Tensor) -> Tensor:
    """Reorder the values of `cover` (n, *size): the highest go to points by credit (n, *size), the rest by cover."""
    values, earned = cover.flatten(1), credit.flatten(1)
    by_cover = values.argsort(dim=1, descending=True, stable=True)
    by_credit = earned.gather(1, by_cover).argsort(dim=1, descending=True, stable=True)
    order = by_cover.gather(1, by_credit)
    return torch.empty_like(values).scatter_(1, order, values.gather(1, by_cover)).view_as(cover)
