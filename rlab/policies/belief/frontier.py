"""The cheapest sets: all assignments that are best at some exchange rate between effect and cost, in order of their cost.

At each patch the entries worth taking are the upper hull of (cost, effect): each step along it buys effect at a rate that only
falls. All steps of all patches, sorted by rate, are a path from nothing to everything, and any cut of it maximises
effect - rate * cost: the Lagrangian solution for that budget. One sort in place of a bisection.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Frontier:
    """S = l p steps of each of n samples, dearest last; steps without effect come last and cost infinity.

    No patch has more than l <= f steps.
    """

    order: Tensor  # (n, S) the steps' places as level * p + patch, in the order they are taken
    entries: Tensor  # (n, l, p) the entry each step puts at its patch
    effect: Tensor  # (n, S) summed along the path
    cost: Tensor  # (n, S)
    rate: Tensor  # (n, S) effect over cost of each step, falling
    useful: Tensor  # (n,) number of steps with an effect

    def cut(self, steps: Tensor) -> Tensor:
        """steps (n,) -> the assignment (n, p) after these steps."""
        return self.cuts(steps[:, None])[:, 0]

    def cuts(self, steps: Tensor) -> Tensor:
        """steps (n, b) -> the assignments (n, b, p) after these steps."""
        n, levels, p = self.entries.shape
        place = torch.arange(levels * p, device=steps.device).expand(n, -1)
        ranks = torch.empty_like(self.order).scatter_(1, self.order, place)  # when each step is taken
        level = (ranks[:, None] < steps[:, :, None]).view(n, -1, levels, p).sum(2)  # steps taken at each patch
        return torch.cat([torch.zeros_like(self.entries[:, :1]), self.entries], 1).gather(1, level)

    def for_effect(self, enough: Tensor) -> Tensor:
        """(n,) or (n, b): the fewest steps whose effect is `enough`; all useful steps if none suffice."""
        return self._search(self.effect, enough, 1)

    def for_cost(self, most: Tensor) -> Tensor:
        """(n,) or (n, b): the most steps whose cost is below `most`, at least one."""
        return self._search(self.cost, most, 0).clamp(min=1)

    def _search(self, along: Tensor, value: Tensor, more: int) -> Tensor:
        """The number of steps along the path (n, S) that lie below a value, plus `more`; never a useless one."""
        steps = torch.searchsorted(along, value.reshape(len(along), -1).contiguous().to(along.dtype)) + more
        return torch.minimum(steps, self.useful[:, None]).view_as(value)

    def rate_at(self, steps: Tensor) -> Tensor:
        """(n,): effect over cost of the last of `steps` (n,), at least one."""
        return self.rate.gather(1, (steps - 1)[:, None])[:, 0]


def make_frontier(effect: Tensor, cost: Tensor, judged: Tensor | None = None, price: Tensor | None = None) -> Frontier:
    """effect and cost (n, f, p) of single changes.

    With `judged` (n, f, p) the path follows `effect` but sums `judged`: what looks best in a random draw is mostly luck, and
    its sum promises too much. With `price` (n,) the path goes by a cost that is higher by this for each patch, which favours
    few patches; the costs that it sums stay as they are.
    """
    n, f, p = effect.shape
    gained, spent, counted = (effect.new_zeros(n, 1, p) for _ in range(3))
    rates: list[Tensor] = []
    entries, gains, costs = [], [], []
    fixed = cost.new_zeros(n, 1, 1) if price is None else price[:, None, None]
    for _ in range(f):
        gain, more = effect - gained, cost - spent
        rate = torch.where((gain > 0) & (more > 0), gain / (more + fixed).clamp(min=1e-30), -torch.inf)
        fixed = torch.zeros_like(fixed)  # a patch is paid for once
        best, entry = rate.max(1, keepdim=True)
        useful = best > -torch.inf
        step_gain = torch.where(useful, gain.gather(1, entry), 0.0)
        step_cost = torch.where(useful, more.gather(1, entry), 0.0)
        # Rounding must not reverse the steps of a patch.
        rates.append(torch.minimum(best, rates[-1]) if rates else best)
        entries.append(entry + 1)
        costs.append(torch.where(useful, step_cost, torch.inf))
        gained, spent = gained + step_gain, spent + step_cost
        if judged is not None:
            step_gain = torch.where(useful, judged.gather(1, entry) - counted, 0.0)
            counted = counted + step_gain
        gains.append(step_gain)
    rate, gain, price = (torch.cat(parts, 1).flatten(1) for parts in (rates, gains, costs))
    rate, order = rate.sort(dim=1, descending=True, stable=True)
    useful = torch.isfinite(price).sum(1)
    summed = gain.gather(1, order).cumsum(1)
    if judged is not None:
        summed = summed.cummax(1).values  # a binary search needs sums that never fall
    return Frontier(order, torch.cat(entries, 1), summed, price.gather(1, order).cumsum(1), rate, useful)
