"""An attack that goes on past the flip until the class is all but gone; a patch's credit is how sure the model still was."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.explanation.base import Case


@dataclass(frozen=True)
class Episode:
    """At every step the `width` most promising patches are tried, one query each, and the best of them is taken."""

    until: float = 0.02  # the class's probability at which it ends
    width: int = 12
    steps: int = 28  # at most

    def __call__(self, case: Case, bank: Tensor, grid: PatchGrid, promise: Tensor, banned: Tensor) -> Tensor:
        """Promise (n, p), patches that may not be used (n, p) bool -> credit (n, p), 0 where a patch was not taken."""
        promise, credit = promise.clone(), torch.zeros_like(promise)
        taken = torch.zeros_like(banned)
        belief = case.belief(case.clean, torch.arange(len(case), device=promise.device))
        width = min(self.width, len(grid))
        for _ in range(self.steps):
            open_ = (~(taken | banned)).sum(1) >= 1
            live = ((belief > math.log(self.until)) & open_).nonzero().flatten()
            if not len(live):
                break
            allowed = promise[live].masked_fill((taken | banned)[live], -torch.inf)
            hope, tried = allowed.topk(width, 1)
            answer = self._look(case, bank, grid, taken, live, tried)
            drop = (belief[live, None] - answer).masked_fill(hope == -torch.inf, -torch.inf)
            promise[live[:, None], tried] = drop  # what was measured stands until it is measured again
            best = drop.argmax(1, keepdim=True)
            patch = tried.gather(1, best).squeeze(1)
            credit[live, patch] = belief[live].exp()
            taken[live, patch] = True
            belief[live] = answer.gather(1, best).squeeze(1)
        return credit

    def _look(self, case: Case, bank: Tensor, grid: PatchGrid, taken: Tensor, live: Tensor, tried: Tensor) -> Tensor:
        """The class's score (m, width) with one more patch of `tried` (m, width) hidden in each live row."""
        samples = live.repeat_interleave(tried.shape[1])
        hidden = taken[samples].scatter(1, tried.flatten()[:, None], True)
        x = render(bank[samples], hidden.long(), grid)
        return case.belief(case.ask(x, samples), samples).view_as(tried)
