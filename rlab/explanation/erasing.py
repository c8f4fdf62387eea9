"""Adversarial erasing (Wei et al. 2017, https://arxiv.org/abs/1703.08448): hide the best of a few patches, again and again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.explanation.base import ExplanationTask


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
