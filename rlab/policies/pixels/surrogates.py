"""Where surrogates lead: steps on their gradients cost the victim nothing, one query of it a round sets the radius.

The first queries go along the surrogates' common direction, to a radius that they foretell and the victim's answers correct.
Later ones lean the best flip towards one surrogate at a time, so that the victim says which of them to trust.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.goals import Goal
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.belief import Belief, dot, far, margins_of
from rlab.priors.copies import moved_copies
from rlab.priors.surrogates import SurrogatePrior

STEPS, AGAIN = 12, 5  # on the surrogates before the first query, and before each further one of the opening
OPENING = 3  # queries
FIRST = 0.005  # how much every value changes at the first step
RADIUS = 1.4  # the first radius, in those the surrogates foretell
ONLY, MOST = 2.5, 0.018  # that of a search of one query, unless every value would change by more
# How far beyond where the margin should vanish, as a share of the way there: after a flip by the first query, by a later one,
# and after a miss.
SPARE = (0.08, 0.2, 0.5)
ANGLE, SHRINK = 0.2, 0.02  # of a leaning


_OPENED = ("towards", "radius", "missed", "last", "margin", "spare")  # what an opening remembers


@dataclass(frozen=True)
class Guide:
    """Surrogates of a search that keeps values within `bounds`."""

    prior: SurrogatePrior
    bounds: tuple[float, float]

    def begin(self, state: State, goal: Goal) -> Belief:
        self.prior.check_classes(state.scores.shape[1])
        empty, sets = torch.zeros_like(state.x0), 2 * len(self.prior.surrogates)
        return {
            "towards": empty,  # the surrogates' common direction
            "radius": torch.full_like(state.margin, far(state, FIRST)),
            "missed": torch.zeros_like(state.margin),  # the largest radius that did not flip
            "last": torch.zeros_like(state.margin),  # the radius asked before the last, and the margin there
            "margin": state.margin0,
            "spare": empty[:, None].repeat(1, sets, *(1,) * (empty.dim() - 1)),  # directions to lean towards
            "leant": torch.zeros_like(state.sample),  # how many of them were
            "alike": self.prior.alike(state.x0, state.y, goal),
        }

    def opening(self, state: State) -> Tensor:
        """(n,) bool: rows that follow the surrogates' common direction."""
        return (state.step < OPENING) | (state.margin >= 0)

    def open(self, memory: Belief, state: State, task: Task, rows: Tensor) -> Tensor:
        """The perturbation (n, c, *size) to ask next where `rows`."""
        first = int(state.step[0]) == 0
        some, held = state[rows], {name: memory[name][rows] for name in (*_OPENED, "asked", "alike")}
        seen = margins_of(some.answer, some, task)
        if not first:
            _next_radius(some, held, seen.amin(1))
        way, start = seen.argmin(1), None
        only = first and task.budget <= 3
        for number in range(STEPS + AGAIN * only if first else AGAIN):
            delta = held["towards"] * wide(held["radius"], held["towards"])
            margins, directions = self._directions(some, task, way, delta, held["alike"], number)
            if first and number < STEPS:
                start = margins if start is None else start
                held["radius"] = _foretold(held["radius"], some.margin0, start - margins) if number else held["radius"]
            elif only and number == STEPS:
                held["radius"] = (ONLY * held["radius"]).clamp(max=far(state, MOST))
            held["towards"] = unit(held["towards"] + unit(directions.mean(1)))
            held["spare"] = torch.cat(
                [_ordered(directions, held["towards"]), held["spare"][:, : directions.shape[1]]], 1
            )
        if first and not only:
            held["radius"] = RADIUS * held["radius"]
        for name in _OPENED:
            memory[name] = memory[name].clone()
            memory[name][rows] = held[name]
        return memory["towards"] * wide(memory["radius"], memory["towards"])

    def lean(self, memory: Belief, state: State, task: Task, rows: Tensor, move: Tensor) -> Tensor:
        """The `move` (n, c, *size) that is expected to suffice, turned towards the next surrogate's direction, where `rows`."""
        spare, leant = memory["spare"].clone(), memory["leant"].clone()
        own = spare.shape[1] // 2
        used = rows & (leant == 2 * own)
        if used.any():
            some = state[used]
            way = margins_of(some.answer, some, task).argmin(1)
            _, new = self._directions(some, task, way, memory["base"][used], memory["alike"][used])
            spare[used] = torch.cat([spare[used][:, own:], new], 1)
            leant[used] = own
        at, row = leant.clamp(max=2 * own - 1), torch.arange(len(state), device=rows.device)
        centre, earlier = unit(move), torch.arange(2 * own, device=rows.device) < at[:, None]
        towards = spare[row, at]
        known = dot(spare, towards[:, None]) * earlier  # of what was asked in directions before this one
        towards = towards - (wide(known, spare) * spare).sum(1)
        towards = unit(towards - centre * wide((centre * towards).flatten(1).sum(1), centre))
        spare[row, at] = torch.where(wide(rows, towards), towards, spare[row, at])
        memory |= {"spare": spare, "leant": leant + rows}
        turned = unit(centre + ANGLE * towards)
        far_enough = math.sqrt(1 + ANGLE**2) * lengths(move)  # were the direction worth nothing
        return turned * wide(far_enough.minimum((1 - SHRINK) * lengths(memory["base"])), turned)

    def _directions(
        self, state: State, task: Task, way: Tensor, delta: Tensor, alike: Tensor, number: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Each surrogate's margin (n, s) at the perturbation, and the unit direction in which it falls (n, s, c, *size); each
        is shown two copies of the input, others than the next surrogate and than at the next step, `number`."""
        x = (state.x0 + wide(state.scale, delta) * delta).clamp(*self.bounds)
        labels = torch.cat([state.y.view(len(way), -1), way[:, None]], 1)

        def of(scores: Tensor, labels: Tensor) -> Tensor:
            return _margin(task.goal, scores, labels[:, :-1], labels[:, -1:])

        every = moved_copies(task.grid.rank)
        first = 2 * (int(state.step[0]) * STEPS + number)
        copies = [
            [every[(first + 3 * surrogate + second) % len(every)] for second in range(min(2, len(every)))]
            for surrogate in range(len(self.prior.surrogates))
        ]
        margins, gradients = self.prior.gradients(x, labels, of, copies, alike)
        return margins, -unit(gradients, 2)


def _margin(goal: Goal, scores: Tensor, labels: Tensor, way: Tensor) -> Tensor:
    """(n,): of one way to reach the goal."""
    alternatives = goal.alternatives(scores, labels if goal.multilabel else labels[:, 0])
    return alternatives.gather(1, way).squeeze(1)


def _ordered(directions: Tensor, along: Tensor) -> Tensor:
    """Directions (n, s, c, *size), those first that agree most with `along` (n, c, *size)."""
    order = dot(directions, along[:, None]).argsort(1, descending=True)
    return directions[torch.arange(len(order), device=order.device)[:, None], order]


def _foretold(radius: Tensor, need: Tensor, drop: Tensor) -> Tensor:
    """(n,): where the victim's margin `need` would vanish if it fell as a middling surrogate's, by `drop` (n, s) at the radius."""
    usual = drop.median(1).values
    return (radius * need / usual.clamp(min=1e-6)).clamp(0.3 * radius, 4 * radius)


def _next_radius(state: State, held: Belief, margin: Tensor) -> None:
    """Where the margin (n,) vanishes by the last two answers, a little beyond, between the largest miss and the nearest flip."""
    asked, won, flipped = lengths(held["asked"]), margin < 0, state.margin < 0
    start = state.margin0 / asked.clamp(min=1e-12)
    drop = (held["margin"] - margin) / (
        asked - held["last"]
    )  # for a unit of L2; the straight line's where it says nothing
    drop = torch.where(drop > 0.2 * start, drop, ((state.margin0 - margin) / asked).maximum(0.1 * start))
    vanishes = asked + margin / drop
    early = held["last"] == 0
    spare = torch.where(won, torch.where(early, SPARE[0], SPARE[1]), SPARE[2]) * (vanishes - asked).abs()
    missing = (vanishes + spare).clamp(1.05 * asked, 2 * asked)
    missed = torch.where(won, held["missed"], held["missed"].maximum(asked))
    best = torch.where(flipped, state.distance, torch.inf)
    low = torch.where(missed < best, missed, 0.5 * best)
    nearer = (vanishes + spare).maximum(low + 0.3 * (best - low)).minimum(0.99 * best)
    held |= {"radius": torch.where(flipped, nearer, missing), "missed": missed, "last": asked, "margin": margin}
