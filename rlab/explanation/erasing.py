"""Erasing for the method 'belief': hide patches one by one until what is explained is gone, then rank the map by them.

After adversarial erasing (Wei et al. 2017, https://arxiv.org/abs/1703.08448).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.explanation.base import ExplanationTask

WIDTH = 8  # patches tried in each step
UNTIL = 0.01  # hiding stops when less than this is left
LEAST = 0.02  # a patch that lowers the logarithm by less is not hidden


def erase_patches(task: ExplanationTask, bank: Tensor, grid: PatchGrid, promise: Tensor, steps: int) -> Tensor:
    """Bank (n, 2, c, *size), promise (n, p) -> credit (n, p), 0 for patches not hidden.

    Each step tries the most promising patches, with one query each, and hides the best permanently. Its credit is the class's
    probability, or the share of the object shown, just before.
    """
    promise, credit, score = promise.clone(), torch.zeros_like(promise), task.clean_score
    taken, width = torch.zeros_like(promise, dtype=torch.bool), min(WIDTH, len(grid))
    for _ in range(steps):
        live = ((score > math.log(UNTIL)) & ~taken.all(1)).nonzero().flatten()
        if not len(live):
            break
        hope, tried = promise[live].masked_fill(taken[live], -torch.inf).topk(width, 1)
        samples = live.repeat_interleave(width)
        hidden = taken[samples].scatter(1, tried.flatten()[:, None], True)
        answer = task.query(render(bank[samples], hidden.long(), grid), samples).view_as(tried)
        drop = (score[live, None] - answer).masked_fill(hope == -torch.inf, -torch.inf)
        promise[live[:, None], tried] = drop  # a measurement stays valid until the next one
        best = drop.argmax(1, keepdim=True)
        useful = drop.gather(1, best).squeeze(1) > LEAST
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
