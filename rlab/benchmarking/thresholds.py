"""Levels of confidence on both sides of the flip: the smallest distortion found that gives the true class a confidence.

The attack's own search takes the confidence below the threshold. If it falls too far, patches are restored: a random half of
those that differ between an assignment above the threshold and one below it, or, if only one differs, cheaper changes in its
place. Levels run from the severest to the mildest. A result for one level also serves every milder level that it satisfies
and that finds nothing smaller, so a sample's milder level never has more distortion than a severer one.
Shapes: n rows, f entries, p patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.benchmarking.config import LadderLevel
from rlab.benchmarking.goals import Threshold
from rlab.benchmarking.ladder_search import LadderSearch, growth, moved, spent
from rlab.benchmarking.sample_files import SampleFiles
from rlab.core.attack import Attack, SearchOutcome
from rlab.core.env import State, render
from rlab.core.goals import Goal
from rlab.core.rng import uniform
from rlab.results.result import Status
from rlab.victims.base import QueryMeter, Victim

_ROUND = 20  # queries after which the bisection restarts


@dataclass(frozen=True)
class Near:
    """One chunk of n samples at one confidence, before its files are written and queried again."""

    level: LadderLevel
    goal: Threshold
    outcome: SearchOutcome
    met: Tensor  # (n,) bool


def search_around(
    attack: Attack, victim: Victim, files: SampleFiles, search: LadderSearch
) -> tuple[SearchOutcome, list[Near]]:
    """The flips of one chunk and every level of a `confidence` ladder; each level is a separate attack."""
    batch, first, plan = files.batch, files.first, files.plan
    labels, ladder, tolerance = plan.labels, plan.ladder, plan.options.tolerance
    flips, near, kept = attack.search(victim, batch, first, labels), list[Near](), None

    def find(level: LadderLevel, kept: State | None, beyond: bool) -> State | None:
        goal = Threshold(attack.goal, level.value, beyond)
        outcome = replace(attack, goal=goal).search(victim, batch, first, labels)
        state, meter = _cheapest(outcome.flipped, kept, goal, search), outcome.meter
        meter.budget = None  # the budget was for the search
        if state is not None:
            state = settle(search, meter, state, goal, tolerance)
        outcome = _with_rows(outcome, state)
        met = torch.zeros(len(batch), dtype=torch.bool)
        met[outcome.rows] = goal.met(outcome.scores[outcome.rows], batch.y[outcome.rows], tolerance)
        near.append(Near(level, goal, outcome, met))
        return state

    for level in reversed(ladder.levels[ladder.before :]):
        kept = find(level, kept, beyond=True)
    kept = _cheapest(flips.flipped, kept, attack.goal, search)
    flips = _with_rows(flips, kept)
    for level in reversed(ladder.levels[: ladder.before]):
        kept = find(level, kept, beyond=False)
    return flips, near


def _cheapest(own: State | None, kept: State | None, goal: Goal, search: LadderSearch) -> State | None:
    """For every sample, the row with the smallest distortion that reaches the goal."""
    states = [state[goal.reached(state.scores, state.y)] for state in (own, kept) if state is not None]
    if not states:
        return None
    rows = State.cat(states)
    order = spent(search.cost(rows), rows.assignment).argsort(stable=True)
    nearest = {int(rows.sample[at]): at for at in reversed(order.tolist())}
    return rows[order.new_tensor([nearest[sample] for sample in sorted(nearest)])]


def _with_rows(outcome: SearchOutcome, state: State | None) -> SearchOutcome:
    """The outcome of a search with the rows of the state in place of its own."""
    if state is None:
        return outcome
    rows, status = state.sample.cpu(), list(outcome.status)
    scores, assignment, x = outcome.scores.clone(), outcome.assignment.clone(), outcome.perturbed.clone()
    scores[rows], x[rows] = state.scores.cpu(), state.x.cpu()
    assignment[rows] = state.assignment.cpu().to(assignment.dtype)
    for i in rows.tolist():
        status[i] = Status.SUCCEEDED
    return replace(outcome, flipped=state, scores=scores, assignment=assignment, perturbed=x, status=tuple(status))


def settle(search: LadderSearch, meter: QueryMeter, state: State, goal: Threshold, tolerance: float) -> State:
    """Rows below the threshold, each brought near it with no more distortion, where the search's steps find a way; the others
    as they were."""
    cost = search.cost(state)
    low, high = torch.zeros_like(state.assignment), state.assignment.clone()  # one above the threshold, one below it
    above = torch.full_like(state.margin, math.inf)  # margin of `low`
    done = goal.met(state.scores, state.y, tolerance)
    for step in range(search.steps):
        rows = (~done).nonzero().flatten()
        if not len(rows):
            break
        if step % _ROUND == _ROUND - 1:  # restart with other random numbers
            low[rows], high[rows], above[rows] = 0, state.assignment[rows], math.inf
        some = state[rows]
        wanted, halved = _between(low[rows], high[rows], cost[rows], some.seed, some.step + 2**22 + step)
        x = render(some.bank, wanted, search.grid)
        scores = meter(x, some.sample, "search")
        met, margin = goal.met(scores, some.y, tolerance), goal.margin(scores, some.y)
        nearer = (margin >= 0) & (halved | (margin < above[rows]))
        low[rows] = torch.where(nearer[:, None], wanted, low[rows])
        above[rows] = torch.where(nearer, margin, above[rows])
        high[rows] = torch.where((margin < 0)[:, None], wanted, high[rows])
        done[rows[met]] = True
        state = moved(state, rows[met], wanted[met], x[met], scores[met])
    return state


def _between(low: Tensor, high: Tensor, cost: Tensor, seed: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """(n, p): `low` with a random half of the patches in which `high` differs, and (n,) True.

    If only one patch differs: `low` with a random entry on a random patch that keeps it cheaper than `high`, and False.
    """
    entries, patches = cost.shape[1:]
    chance = uniform(seed, step, (1 + entries) * patches)
    differs = low != high
    count = differs.sum(1)
    order = chance[:, :patches].masked_fill(~differs, math.inf).argsort(1).argsort(1)
    half = torch.where(differs & (order < (count // 2)[:, None]), high, low)
    room = spent(cost, high) - spent(cost, low)
    fits = (growth(cost, low) < room[:, None, None]).flatten(1)
    drawn = chance[:, patches:].masked_fill(~fits, -1.0).argmax(1)
    more = low.scatter(1, (drawn % patches)[:, None], (drawn // patches)[:, None])
    more = torch.where(fits.any(1)[:, None], more, low)
    return torch.where((count > 1)[:, None], half, more), count > 1
