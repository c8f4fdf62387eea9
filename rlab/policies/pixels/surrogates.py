"""Where surrogates lead: steps on their gradients cost no queries, and one query per round sets the radius.

The first queries follow the surrogates' common direction, to a radius that they predict and the victim's answers correct. Later
queries lean the best flip towards one surrogate at a time, so that the answers show which of them to trust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.ray import Ray
from rlab.policies.pixels.slopes import dot, far, margins_of
from rlab.policies.pixels.state import Lead, PixelState
from rlab.priors.copies import moved_copies
from rlab.priors.surrogates import SurrogatePrior

OPENING = 3  # queries that follow the surrogates
STEPS, AGAIN = 12, 5  # on the surrogates before the first query, and before each later one of these
FIRST = 0.005  # how much every value changes in the first step
RADIUS = 1.4  # the first radius, relative to what the surrogates predict
ONLY, MOST = 2.5, 0.018  # the same for a search of one query, unless every value would change by more than MOST
ANGLE, SHRINK = 0.2, 0.02  # of a leaning


@dataclass(frozen=True)
class Guide:
    """Surrogates of a search that keeps values within `bounds`."""

    prior: SurrogatePrior
    bounds: tuple[float, float]

    def begin(self, state: State, task: Task) -> Lead:
        """The direction and radius of the first query."""
        self.prior.check_classes(state.scores.shape[1])
        empty, sets = torch.zeros_like(state.x0), 2 * len(self.prior.surrogates)
        lead = Lead(
            ray=Ray.begin(state, empty, far(state, FIRST)),
            spare=empty[:, None].repeat(1, sets, *(1,) * (empty.dim() - 1)),
            leant=torch.zeros_like(state.sample),
            alike=self.prior.alike(state.x0, state.y, task.goal),
        )
        return self._first(lead, state, task, margins_of(state.answer, state, task).argmin(1))

    def learn(self, memory: PixelState, state: State, task: Task) -> PixelState:
        """With the last answer: the next radius, and a better direction, where rows still follow the common one."""
        assert memory.lead is not None
        rows = follows(state)
        if not rows.any():
            return memory
        some, queried = state[rows], lengths(memory.queried[rows])
        margins = margins_of(some.answer, some, task)
        lead = memory.lead[rows]
        lead = replace(lead, ray=lead.ray.answered(some, queried, margins.amin(1)))
        for number in range(AGAIN):
            _, directions = self._directions(lead, some, task, margins.argmin(1), lead.ray.delta, number)
            lead = _turned(lead, directions)
        return replace(memory, lead=memory.lead.put(rows, lead))

    def _first(self, lead: Lead, state: State, task: Task, rival: Tensor) -> Lead:
        """With steps on the surrogates; a search of one query goes further at once."""
        only, start = task.budget <= 3, None
        for number in range(STEPS + AGAIN * only):
            margins, directions = self._directions(lead, state, task, rival, lead.ray.delta, number)
            start = margins if start is None else start
            if 0 < number < STEPS:
                lead = lead.at(_predicted(lead.ray.radius, state.margin0, start - margins))
            elif only and number == STEPS:
                lead = lead.at((ONLY * lead.ray.radius).clamp(max=far(state, MOST)))
            lead = _turned(lead, directions)
        return lead if only else lead.at(RADIUS * lead.ray.radius)

    def lean(
        self, memory: PixelState, state: State, task: Task, rows: Tensor, move: Tensor
    ) -> tuple[PixelState, Tensor]:
        """The `move` (n, c, *size) that should suffice, turned towards the next surrogate's direction where `rows`."""
        assert memory.lead is not None
        lead = self._replenished(memory, memory.lead, state, task, rows)
        spare, last = lead.spare, lead.spare.shape[1] - 1
        at, row = lead.leant.clamp(max=last), torch.arange(len(state), device=rows.device)
        centre, earlier = unit(move), torch.arange(last + 1, device=rows.device) < at[:, None]
        towards = spare[row, at]
        known = dot(spare, towards[:, None]) * earlier  # the part along directions that were used before
        towards = towards - (wide(known, spare) * spare).sum(1)
        towards = unit(towards - centre * wide((centre * towards).flatten(1).sum(1), centre))
        spare = spare.index_put((row, at), torch.where(wide(rows, towards), towards, spare[row, at]))
        turned = unit(centre + ANGLE * towards)
        far_enough = math.sqrt(1 + ANGLE**2) * lengths(move)  # if the direction were worth nothing
        delta = turned * wide(far_enough.minimum((1 - SHRINK) * lengths(memory.base)), turned)
        return replace(memory, lead=replace(lead, spare=spare, leant=lead.leant + rows)), delta

    def _replenished(self, memory: PixelState, lead: Lead, state: State, task: Task, rows: Tensor) -> Lead:
        """New directions at the base where all have been used."""
        own = lead.spare.shape[1] // 2
        used = rows & (lead.leant == 2 * own)
        if not used.any():
            return lead
        some, old = state[used], lead[used]
        rival = margins_of(some.answer, some, task).argmin(1)
        _, new = self._directions(old, some, task, rival, memory.base[used])
        spare, leant = torch.cat([old.spare[:, own:], new], 1), torch.full_like(old.leant, own)
        return lead.put(used, replace(old, spare=spare, leant=leant))

    def _directions(
        self, lead: Lead, state: State, task: Task, rival: Tensor, delta: Tensor, number: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Each surrogate's margin (n, s) at the perturbation, and the unit direction in which it falls (n, s, c, *size). Each
        sees two copies of the input, which differ between surrogates and between steps."""
        x = (state.x0 + wide(state.scale, delta) * delta).clamp(*self.bounds)

        def margin(scores: Tensor, labels: Tensor, rival: Tensor) -> Tensor:
            return task.goal.alternatives(scores, labels).gather(1, rival[:, None]).squeeze(1)

        every = moved_copies(task.grid.kind)
        first = 2 * (int(state.step[0]) * STEPS + number)  # all rows step together
        copies = [
            [every[(first + 3 * surrogate + second) % len(every)] for second in range(min(2, len(every)))]
            for surrogate in range(len(self.prior.surrogates))
        ]
        margins, gradients = self.prior.gradients(x, (state.y, rival), margin, copies, lead.alike)
        return margins, -unit(gradients, 2)


def follows(state: State) -> Tensor:
    """(n,) bool: rows that follow the surrogates' common direction."""
    return (state.step < OPENING) | (state.margin >= 0)


def _turned(lead: Lead, directions: Tensor) -> Lead:
    """With the mean of the surrogates' directions (n, s, c, *size) added; these also become the first spare ones."""
    towards = lead.ray.towards + unit(directions.mean(1))
    spare = torch.cat([_ordered(directions, towards), lead.spare[:, : directions.shape[1]]], 1)
    return replace(lead, ray=replace(lead.ray, towards=towards), spare=spare)


def _ordered(directions: Tensor, along: Tensor) -> Tensor:
    """Directions (n, s, c, *size), those that agree most with `along` (n, c, *size) first."""
    order = dot(directions, along[:, None]).argsort(1, descending=True)
    return directions[torch.arange(len(order), device=order.device)[:, None], order]


def _predicted(radius: Tensor, need: Tensor, drop: Tensor) -> Tensor:
    """(n,): where the victim's margin `need` vanishes if it falls like the median surrogate's, by `drop` (n, s) at the radius."""
    usual = drop.median(1).values
    return (radius * need / usual.clamp(min=1e-6)).clamp(0.3 * radius, 4 * radius)
