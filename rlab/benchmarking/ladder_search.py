"""The search beyond the flip: distort more patches, or distort them more, until a level is reached without exceeding it.

Squared L2 adds up over patches, so the distance of an addition is known without a query. Every other step adds changes that
lowered the margin before, the steps between add random ones. No policy takes part, because some
policies reduce the distance. An addition stays if the victim errs more clearly. Shapes: n rows, f palette entries, p patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.benchmarking.config import LadderLevel
from rlab.benchmarking.goals import LeadingGoal
from rlab.core.attack import Attack
from rlab.core.env import Accept, AttackEnv, State, Task, propose, render
from rlab.core.feedback import Feedback
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch
from rlab.filters.palette import bounded
from rlab.victims.meter import QueryMeter

NEAR = 0.95  # share of a distance that counts as reached: patches are indivisible, so it is seldom met exactly
_ROUNDING = 1e-5  # relative, in sums of squares
_REACH = 32  # samples that measure how far a palette reaches
_FILLS = 10  # attempts to use the distance that is left, one query each


@dataclass(frozen=True)
class LadderSearch:
    """Takes flipped rows from level to level, with at most `steps` + `_FILLS` queries per level."""

    grid: PatchGrid
    goal: Goal
    steps: int
    span: float  # one unit of L2 in the data's values

    def to(self, meter: QueryMeter, state: State, level: LadderLevel, flip: Tensor) -> tuple[State, list[str]]:
        """The rows in order, and why each is not at the level ("" if it is). `flip` (n,) is the L2 of the flips.

        What changes do is learned anew at each level.
        """
        assert level.target is not None
        goal = LeadingGoal(self.goal, 0.0, deeper=True)
        env = AttackEnv(meter.query, Task(self.grid, state.bank.shape[1] - 1, goal, self.steps))
        margin = goal.margin(state.scores, state.y)
        free, least = torch.zeros_like(state.l2_penalty), margin.clamp(min=1e-6)
        start = replace(state, margin=margin, margin0=least, l2_penalty=free)
        target = level.target * (flip if level.kind == "times" else torch.ones_like(flip))
        after = self._fill(env, *self._add(env, start, target), target)
        return after, self._reasons(state, after, target)

    def cost(self, state: State) -> Tensor:
        """Squared L2 (n, f + 1, p) of every entry on every patch."""
        return patch_costs(self.grid, state.bank, self.span)

    def _add(self, env: AttackEnv, state: State, target: Tensor) -> tuple[State, Feedback]:
        """Add until rows reach the level, nothing more fits, or the steps are used up; `target` (n,) is an L2."""
        ended, live, cost, most2 = list[tuple[State, Feedback]](), state, self.cost(state), target.square()
        feedback = Feedback.begin(state)
        for step in range(self.steps):
            room, added = most2 - spent(cost, live.assignment), growth(cost, live.assignment)
            reached = room <= (1 - NEAR**2) * most2
            open_ = ~reached & (added <= room[:, None, None]).flatten(1).any(1)
            if not open_.all():
                ended.append((live[~open_], feedback[~open_]))
                live, most2, cost, room, added = live[open_], most2[open_], cost[open_], room[open_], added[open_]
                feedback = feedback[open_]
            if not len(live):
                break
            count = _share(added, room, self.steps - step)
            chance = uniform(live.seed, live.step + 2**20, added[0].numel()).view_as(added)
            drop = feedback.drop.nan_to_num()
            score = torch.where((drop > 0) & (step % 2 == 0), 3 + drop, chance)
            score = score - 2 * ((drop <= 0) & (feedback.tried > 0))  # changes that did not help come last
            wanted = add(live.assignment, added, score, room, count)
            live, _ = env.step(live, propose(wanted, Accept.IF_BETTER))
            feedback = feedback.after(live)
        states, learned = zip(*ended, (live, feedback), strict=True)
        joined = State.cat(states)
        order = joined.sample.argsort()
        return joined[order], Feedback.cat(learned)[order]

    def _fill(self, env: AttackEnv, state: State, feedback: Feedback, target: Tensor) -> State:
        """Use the distance that is left for anything that keeps the victim wrong; halve an attempt that fails."""
        cost, part = self.cost(state), torch.ones_like(target)
        for turn in range(_FILLS):
            now = spent(cost, state.assignment)
            score = _usefulness(state, feedback, turn)
            wanted = fill_up(cost, state.assignment, score, now + part * (target.square() - now))
            short = (now < (NEAR * target).square()) & (wanted != state.assignment).any(1)
            rows = short.nonzero().flatten()
            if not len(rows):
                break
            some = state[rows]
            x = render(some.bank, wanted[rows], self.grid)
            scores = env.query(x, "search", some.sample, wanted[rows])
            errs_still = self.goal.reached(scores, some.y)
            part = part.index_copy(0, rows, torch.where(errs_still, 1.0, part[rows] / 2))
            state = moved(state, rows[errs_still], wanted[rows][errs_still], x[errs_still], scores[errs_still])
        return state

    def _reasons(self, before: State, after: State, target: Tensor) -> list[str]:
        """Why rows exceed the distance, fall short of it, or are no further than at the level before."""
        far = spent(self.cost(after), after.assignment).sqrt().tolist()
        same = (after.assignment == before.assignment).all(1).tolist()
        return [
            f"the level before is already at L2 {l2:.4g}, beyond {wanted:.4g}" if l2 > wanted * (1 + _ROUNDING)
            else f"no further patch fits and keeps the model wrong: L2 {l2:.4g} of {wanted:.4g}" if l2 < NEAR * wanted
            else "the level before is already here" if unchanged else ""
            for l2, wanted, unchanged in zip(far, target.tolist(), same, strict=True)
        ]  # fmt: skip


def unit_span(bounds: tuple[float, float]) -> float:
    """One unit of L2 in the data's values."""
    return bounds[1] - bounds[0] if bounded(bounds) else 1.0


def patch_costs(grid: PatchGrid, bank: Tensor, span: float) -> Tensor:
    """bank (n, f + 1, c, *size) -> (n, f + 1, p): squared L2 of every entry on every patch, in units of `span`."""
    return grid.collect((bank - bank[:, :1]).square()) / span**2


def measured_bank(attack: Attack, batch: Batch, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """The bank (n, f + 1, c, *size), the cost (n, f + 1, p) of its entries, and the seeds (n,)."""
    seeds = sample_seeds(attack.seed, first, len(batch))
    bank = attack.palette.bank(batch.x.contiguous(), batch.bounds, seeds.tolist())
    return bank, patch_costs(attack.grid, bank, unit_span(batch.bounds)), seeds


def palette_reach(attack: Attack, batch: Batch) -> float:
    """How far the palette reaches against any model: the mean L2 of the first samples with the strongest entry on every patch."""
    costs = (measured_bank(attack, batch[at : at + 1], at)[1] for at in range(min(_REACH, len(batch))))
    far = [float(cost.amax(1).sum().sqrt()) for cost in costs]
    return sum(far) / len(far)


def spent(cost: Tensor, assignment: Tensor) -> Tensor:
    """cost (n, f + 1, p), assignment (n, p) -> squared L2 (n,)."""
    return cost.gather(1, assignment[:, None]).squeeze(1).sum(1)


def growth(cost: Tensor, assignment: Tensor) -> Tensor:
    """(n, f + 1, p): squared L2 that an entry adds on a patch; infinite if it adds none."""
    more = cost - cost.gather(1, assignment[:, None])
    return torch.where(more > 0, more, math.inf)


def add(assignment: Tensor, cost: Tensor, score: Tensor, room: Tensor, most: Tensor) -> Tensor:
    """Write the best entries on the best patches: at most `most` (n,) patches, within the room (n,)."""
    best, entry = score.masked_fill(cost > room[:, None, None], -math.inf).max(1)
    order = best.argsort(1, descending=True)
    each = cost.gather(1, entry[:, None]).squeeze(1).gather(1, order)
    each = torch.where(best.gather(1, order) > -math.inf, each, math.inf)
    position = torch.arange(order.shape[1], device=order.device)
    take = (each.cumsum(1) <= room[:, None]) & each.isfinite() & (position < most[:, None])
    return assignment.scatter(1, order, torch.where(take, entry.gather(1, order), assignment.gather(1, order)))


def fill_up(cost: Tensor, assignment: Tensor, score: Tensor, most2: Tensor) -> Tensor:
    """Add in the order of the score (n, f + 1, p) until nothing fits below a squared L2 of `most2` (n,)."""
    whole = torch.full((len(assignment),), cost.shape[2], device=cost.device)
    while True:
        more = add(assignment, growth(cost, assignment), score, most2 - spent(cost, assignment), whole)
        if torch.equal(more, assignment):
            return more
        assignment = more


def moved(state: State, rows: Tensor, assignment: Tensor, x: Tensor, scores: Tensor) -> State:
    """The state with new assignments (m, p), inputs x and scores in these rows (m,)."""
    return replace(
        state,
        assignment=state.assignment.index_copy(0, rows, assignment),
        x=state.x.index_copy(0, rows, x),
        scores=state.scores.index_copy(0, rows, scores),
    )


def _usefulness(state: State, feedback: Feedback, turn: int) -> Tensor:
    """(n, f + 1, p): changes that helped first, then unknown ones, in a new random order each turn."""
    drop = feedback.drop.nan_to_num()
    chance = uniform(state.seed, state.step + 2**21 + turn, drop[0].numel()).view_as(drop)
    scale = drop.abs().amax((1, 2), keepdim=True).clamp(min=1e-9)
    return drop / scale + chance * (0.01 if turn == 0 else 1.0)


def _share(cost: Tensor, room: Tensor, steps: int) -> Tensor:
    """(n,) patches per step that would fill the room in the remaining steps, at the mean cost of those that fit."""
    fits = cost <= room[:, None, None]
    mean = torch.where(fits, cost, 0.0).flatten(1).sum(1) / fits.flatten(1).sum(1).clamp(min=1)
    return (room / mean.clamp(min=1e-12) / steps).ceil().clamp(1, cost.shape[2]).long()
