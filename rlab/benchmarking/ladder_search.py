"""Beyond the flip: patches are added to what stands, or distorted more, until a level is reached and not exceeded.

Squared L2 adds up over patches, so how far an addition leads is known without asking. What to add: changes that lowered the
margin when they were tried (the attack's own feedback) first, then what the policy proposes, chance where it has nothing.
An addition stays if the victim errs more clearly for it. Shapes: n rows, f palette entries, p patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.benchmarking.ladder import LadderLevel
from rlab.core.env import IF_BETTER, AttackEnv, Proposal, State, Task, render
from rlab.core.goals import Goal, Targeted, Untargeted
from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.policies.base import Policy
from rlab.victims.base import QueryMeter

NEAR = 0.95  # of the distance asked for: patches are whole, so the last one seldom fits to the digit
_DEEP = 20.0  # log-probability past which more confidence counts for nothing
_LOST = 100.0  # log-probability added where the model recovered
_ROUNDING = 1e-5  # of sums of squares
_FILLS = 10  # ways to use up the room that is left, each one query


@dataclass(frozen=True)
class WithMargin(Goal):
    """`goal` with a lead: other hardware and other batches round differently, and must see the same error."""

    goal: Goal
    lead: float

    def __str__(self) -> str:
        return str(self.goal)

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.margin(scores, labels) + self.lead

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.correct(scores, labels)

    def check(self, labels: Tensor, classes: int) -> None:
        self.goal.check(labels, classes)


@dataclass(frozen=True)
class DeeperError(Goal):
    """While `goal` holds, a clearer error; with a `threshold`, the true class's probability below it."""

    goal: Goal
    threshold: float | None = None

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        margin = self.goal.margin(scores, labels)
        depth = margin + _DEEP
        if self.threshold is not None:
            depth = scores.gather(1, labels[:, None]).squeeze(1) - math.log(self.threshold)
        return torch.where(margin < 0, depth, depth.clamp(min=0) + margin + _LOST)


def errs(goal: Goal) -> bool:
    """Whether reaching the goal means a wrong answer."""
    return isinstance(goal, Untargeted | Targeted)


@dataclass(frozen=True)
class LadderSearch:
    """Takes flipped rows from level to level. `steps` queries a level at most, and `_FILLS` to use up the last room."""

    policy: Policy
    grid: PatchGrid
    goal: Goal
    budget: int
    steps: int
    span: float  # what one unit of L2 is in the data's values

    def to(self, meter: QueryMeter, state: State, level: LadderLevel, flip: Tensor) -> tuple[State, list[str | None]]:
        """Rows in their order, and why a row is not at the level (None: it is). `flip` (n,) is the L2 of the flips."""
        if level.kind == "probability":
            after, reasons = self._to_probability(meter, state, level.value)
        else:
            target = level.value * (flip if level.kind == "times" else torch.ones_like(flip))
            after, reasons = self._to_distance(meter, state, target)
        for at, same in enumerate((after.assignment == state.assignment).all(1).tolist()):
            if same and reasons[at] is None:
                reasons[at] = "the level before is there already"
        return after, reasons

    def cost(self, state: State) -> Tensor:
        """(n, f + 1, p): squared L2 of every entry on every patch."""
        changes = (state.bank - state.bank[:, :1]).square().sum(2)
        return self.grid.total(changes) / self.span**2

    def _start(self, meter: QueryMeter, state: State, threshold: float | None) -> tuple[AttackEnv, State]:
        """The rows as they stand, from here on judged by how clearly the victim errs; asks nothing."""
        task = Task(self.grid, state.bank.shape[1] - 1, DeeperError(self.goal, threshold), self.budget)
        margin = task.goal.margin(state.scores, state.y)
        state = replace(
            state, margin=margin, margin0=margin.clamp(min=1e-6), l2_penalty=torch.zeros_like(state.l2_penalty)
        )
        return AttackEnv(meter, task), replace(state, memory=self.policy.begin(state, task))

    def _to_probability(self, meter: QueryMeter, state: State, threshold: float) -> tuple[State, list[str | None]]:
        env, state = self._start(meter, state, threshold)
        passed = state.margin < 0
        done, live = [state[passed]], state[~passed]
        cost = self.cost(live) if len(live) else torch.zeros(0)
        for step in range(self.steps):
            if not len(live):
                break
            most = torch.full((len(live),), 2 ** (4 * step // self.steps), device=live.x.device)
            added, room = growth(cost, live.assignment), torch.full_like(live.margin, 1e30)
            wanted, memory = self._additions(env, live, added, room, most, step)
            live, outcome = env.step(live, Proposal(wanted, torch.full_like(most, IF_BETTER), memory))
            if outcome.done.any():
                done.append(live[outcome.done])
                live, cost = live[~outcome.done], cost[~outcome.done]
        state = _ordered([*done, live])
        stayed = f"the true class's probability stayed above {threshold:g} for {self.steps} queries"
        before = f"the level before lies below {threshold:g} already"
        pairs = zip(passed.tolist(), (state.margin >= 0).tolist(), strict=True)
        return state, [before if was_below else stayed if is_above else None for was_below, is_above in pairs]

    def _to_distance(self, meter: QueryMeter, state: State, target: Tensor) -> tuple[State, list[str | None]]:
        env, state = self._start(meter, state, None)
        cost = self.cost(state)
        far = spent(cost, state.assignment) > target.square() * (1 + _ROUNDING)  # it stands beyond the level
        done, live, room2, cost = [state[far]], state[~far], target[~far].square(), cost[~far]
        for step in range(self.steps):
            room, added = room2 - spent(cost, live.assignment), growth(cost, live.assignment)
            open_ = (room > (1 - NEAR**2) * room2) & (added <= room[:, None, None]).flatten(1).any(1)
            if not open_.all():
                done.append(live[~open_])
                live, room2, cost, room, added = live[open_], room2[open_], cost[open_], room[open_], added[open_]
            if not len(live):
                break
            most = _share(added, room, self.steps - step)
            wanted, memory = self._additions(env, live, added, room, most, step)
            live, _ = env.step(live, Proposal(wanted, torch.full_like(most, IF_BETTER), memory))
        state = self._fill(env, _ordered([*done, live]), target)
        return state, self._reasons(state, target)

    def _fill(self, env: AttackEnv, state: State, target: Tensor) -> State:
        """The room that is left, used up by whatever leaves the victim in error; a try that does not is made half as large."""
        cost, part = self.cost(state), torch.ones_like(target)
        for turn in range(_FILLS):
            now = spent(cost, state.assignment)
            wanted = _fill_up(cost, state, part * (target.square() - now), turn)
            short = (now < (NEAR * target).square()) & (wanted != state.assignment).any(1)
            rows = short.nonzero().flatten()
            if not len(rows):
                break
            some = state[rows]
            x = render(some.bank, wanted[rows], self.grid)
            scores = env.ask(x, some.sample, "search")
            errs_still = self.goal.reached(scores, some.y)
            keep = rows[errs_still]
            part = part.index_copy(0, rows, torch.where(errs_still, 1.0, part[rows] / 2))
            state = replace(
                state,
                assignment=state.assignment.index_copy(0, keep, wanted[keep]),
                x=state.x.index_copy(0, keep, x[errs_still]),
                scores=state.scores.index_copy(0, keep, scores[errs_still]),
            )
        return state

    def _reasons(self, state: State, target: Tensor) -> list[str | None]:
        """Why a row is not at the distance; None where it is."""
        reached = spent(self.cost(state), state.assignment).sqrt()
        reasons: list[str | None] = []
        for l2, wanted in zip(reached.tolist(), target.tolist(), strict=True):
            if l2 > wanted * (1 + _ROUNDING):
                reasons.append(f"the level before lies at L2 {l2:.4g} already, beyond {wanted:.4g}")
            elif l2 < NEAR * wanted:
                reasons.append(
                    f"no further patch was found that fits and leaves the model in error: L2 {l2:.4g} of {wanted:.4g}"
                )
            else:
                reasons.append(None)
        return reasons

    def _additions(
        self, env: AttackEnv, state: State, cost: Tensor, room: Tensor, most: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """The next assignments (n, p), at most `most` (n,) patches other than now, and the policy's memory; `cost` as `growth`."""
        chance = uniform(state.seed, state.step + 2**20, cost.shape[1] * cost.shape[2]).view_as(cost)
        proposal = self.policy.propose(state, env.task)
        feedback = state.feedback.nan_to_num()
        entries = torch.arange(cost.shape[1], device=cost.device)[:, None]
        named = (proposal.assignment[:, None] == entries) & (proposal.assignment != state.assignment)[:, None]
        helped = (feedback > 0) & (step % 2 == 0)  # every other step is the policy's
        score = torch.where(helped, 3 + feedback, torch.where(named, 1 + chance, chance))
        score = score - 2 * ((feedback <= 0) & (state.tried > 0))  # what did not help before comes last
        return add(state.assignment, cost, score, room, most), proposal.memory


def spent(cost: Tensor, assignment: Tensor) -> Tensor:
    """cost (n, f + 1, p), assignment (n, p) -> squared L2 (n,)."""
    return cost.gather(1, assignment[:, None]).squeeze(1).sum(1)


def growth(cost: Tensor, assignment: Tensor) -> Tensor:
    """(n, f + 1, p): squared L2 that writing an entry on a patch adds to what stands there; infinite where it adds none."""
    more = cost - cost.gather(1, assignment[:, None])
    return torch.where(more > 0, more, math.inf)


def add(assignment: Tensor, cost: Tensor, score: Tensor, room: Tensor, most: Tensor) -> Tensor:
    """The best entry of the best patches, as many as `most` (n,) and the room (n,) bear; no patch exceeds it alone."""
    best, entry = score.masked_fill(cost > room[:, None, None], -math.inf).max(1)
    order = best.argsort(1, descending=True)
    each = cost.gather(1, entry[:, None]).squeeze(1).gather(1, order)
    each = torch.where(best.gather(1, order) > -math.inf, each, math.inf)
    position = torch.arange(order.shape[1], device=order.device)
    take = (each.cumsum(1) <= room[:, None]) & each.isfinite() & (position < most[:, None])
    return assignment.scatter(1, order, torch.where(take, entry.gather(1, order), assignment.gather(1, order)))


def _fill_up(cost: Tensor, state: State, room: Tensor, turn: int) -> Tensor:
    """Additions until nothing fits: what helped first, then what is unknown, by another chance every turn."""
    assignment = state.assignment
    chance = uniform(state.seed, state.step + 2**21 + turn, cost.shape[1] * cost.shape[2]).view_as(cost)
    feedback = state.feedback.nan_to_num()
    scale = feedback.abs().amax((1, 2), keepdim=True).clamp(min=1e-9)
    score = feedback / scale + chance * (0.01 if turn == 0 else 1.0)
    whole = torch.full((len(state),), cost.shape[2], device=cost.device)
    while True:
        left = room - (spent(cost, assignment) - spent(cost, state.assignment))
        more = add(assignment, growth(cost, assignment), score, left, whole)
        if torch.equal(more, assignment):
            return more
        assignment = more


def _share(cost: Tensor, room: Tensor, steps: int) -> Tensor:
    """(n,) patches a step that would fill the room in the steps that are left, at the mean cost of what fits."""
    fits = cost <= room[:, None, None]
    mean = torch.where(fits, cost, 0.0).flatten(1).sum(1) / fits.flatten(1).sum(1).clamp(min=1)
    return (room / mean.clamp(min=1e-12) / steps).ceil().clamp(1, cost.shape[2]).long()


def _ordered(parts: list[State]) -> State:
    joined = State.join(parts)
    return joined[joined.sample.argsort()]
