"""Try candidates on a simulator, which costs no query, and query the one that promises most.

A simulator is a set of networks that stand in for the victim: models that you have, or students of the victim. The candidates
are draws of the belief, bold and cautious, and plans made on the simulator beforehand. Each candidate's margin is forecast from
what the networks and the belief say of it, weighted by how right they have been about this sample (see trust). The policy
queries the candidate with the largest expected improvement of the log distance.
Shapes: n samples, c candidates, s networks, p patches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import CONFIDENCE, Accept, AttackEnv, Proposal, State, Task, render
from rlab.policies.base import Policy
from rlab.policies.belief import Belief
from rlab.policies.belief.answers import repeats
from rlab.policies.belief.candidates import make_candidates, summed
from rlab.policies.belief.geometry import distance_of
from rlab.policies.belief.rule import follow_rule
from rlab.policies.belief.state import BeliefState
from rlab.policies.imagine.trust import Trust
from rlab.priors.surrogates import SurrogatePrior

LEAST = 0.3  # of the victim's initial margin: the least unit of a network's own
RANGE = (-1.5, 2.0)  # of margins, in units of the initial one: beyond it they say nothing about the boundary
OTHER = 7919  # between the seeds of the draws
MISSES = 4  # queries without a flip after which the rule has its say; one network alone is trusted for one
# Plans, which are attacks on the simulator before the first query:
SAFETY = (0.0, 0.1, 0.25, 0.5, 1.0)  # by how much a plan flips the simulator, in units of its initial margin
AIMS = (0.1, 0.5)  # the same, for what the imagined attacks aim at
STEPS = 48  # of each imagined attack
_VALUES = 2**22  # the most values of candidates that are rendered at once


@dataclass(frozen=True)
class Candidates(Rows):
    """Possible next queries, the rule's own first."""

    assignment: Tensor  # (n, c, p)
    expected: Tensor  # (n, c) the drop that the belief expects, in units of what is needed
    nearer: Tensor  # (n, c) log of the best distance over its own; without a flip the best is changing everything
    idle: Tensor  # (n, c) bool: queried before, or nothing
    rate: Tensor  # (n,) of the rule's own


@dataclass(frozen=True)
class ImagineState(Rows):
    """What the policy remembers of each sample."""

    belief: BeliefState
    plans: Tensor  # (n, l, p)
    units: Tensor  # (n, s) the networks' initial margins
    trust: Trust
    forecasts: Tensor  # (n, s + 2) of the last proposal
    mute: Tensor  # (n,) bool: the simulator fails on the untouched input already, and is not used
    proposed: Tensor  # (n, p) the last proposal; the loop may have restored patches instead


@dataclass(frozen=True)
class ImaginePolicy(Policy[ImagineState]):
    """The belief search with a simulator that chooses among its candidates."""

    reduces: ClassVar[bool] = True

    belief: Belief = field(repr=False)
    simulator: SurrogatePrior = field(repr=False)
    draws: int = 3  # of the belief, each with a dozen candidates
    wary: bool = False  # of a simulator that fails on the untouched input: students may have learned from another model
    plan: bool = True  # whether to attack the simulator before the first query

    def __str__(self) -> str:
        return f"imagine with {self.simulator}"

    def by_labels(self) -> Policy[Any]:
        return self

    @torch.no_grad()
    def begin(self, state: State, task: Task) -> ImagineState:
        belief = self.belief.begin(state, task)
        floor = LEAST * state.margin0
        units = self._margins(state.x0, state.y, task).maximum(floor[:, None])
        margin = task.goal.margin(self.simulator.mean_scores(state.x0), state.y)
        unit, mute = margin.maximum(floor), self.wary & (margin <= 0)
        plans = state.assignment[:, None, :][:, :0]
        if self.plan:
            plans = _make_plans(self.belief, belief, self.simulator, state, task, unit)
        trust = Trust.first(units.shape[1], state.margin)
        forecasts = units.new_zeros(len(units), units.shape[1] + 2)
        return ImagineState(belief, plans, units, trust, forecasts, mute, state.assignment)

    @torch.no_grad()
    def observe(self, state: State, memory: ImagineState, task: Task) -> ImagineState:
        trust = _after_answer(memory, state, task)
        return replace(memory, trust=trust, belief=self.belief.observe(state, memory.belief, task))

    @torch.no_grad()
    def propose(self, state: State, memory: ImagineState, task: Task) -> Proposal[ImagineState]:
        belief = memory.belief
        candidates = self._candidates(state, belief, memory.plans, task)
        imagined = self._imagined(candidates.assignment, state, memory.units, task)
        believed = (1 - candidates.expected).clamp(*RANGE)[..., None]  # the margin that the belief expects
        forecasts = torch.cat([imagined, believed, torch.ones_like(believed)], 2)
        promising = _improvement(candidates, *memory.trust.forecast(forecasts)).argmax(1)
        choice = torch.where(memory.mute | _rules(belief, imagined.shape[2]), 0, promising)
        rows = torch.arange(len(state), device=choice.device)
        belief, chosen = replace(belief, rate=candidates.rate), candidates.assignment[rows, choice]
        after = replace(memory, belief=belief, forecasts=forecasts[rows, choice], proposed=chosen)
        return Proposal(chosen, torch.full_like(state.step, Accept.IF_NEARER), after)

    @torch.no_grad()
    def fewer(self, state: State, memory: ImagineState, task: Task, most: Tensor) -> Tensor:
        return self.belief.fewer(state, memory.belief, task, most)

    def _candidates(self, state: State, belief: BeliefState, plans: Tensor, task: Task) -> Candidates:
        sets, first = list[Tensor](), None
        for number in range(self.draws):
            drawn = replace(state, seed=state.seed + OTHER * number)
            effects = self.belief.draw(drawn, belief, task)
            rule = follow_rule(belief, effects, drawn, task)
            sets.append(make_candidates(rule, belief, effects, drawn, task))
            first = first or (rule, effects)
        assert first is not None
        rule, effects = first
        rows, values = torch.arange(len(state), device=plans.device), state.x[0].numel()
        assignment, cost = torch.cat([*sets, plans], 1), belief.geometry.cost
        mean, need = effects.mean[rows, rule.rival], effects.need[rows, rule.rival, None]
        far = distance_of(cost.amax(1).sum(1), task.distance, values).clamp(min=1e-12)
        best = torch.where(state.margin < 0, state.distance, far)[:, None].clamp(min=1e-12)
        distance = distance_of(summed(cost, assignment), task.distance, values).clamp(min=1e-12)
        return Candidates(
            assignment=assignment,
            expected=summed(mean, assignment) / need,
            nearer=(best / distance).log(),
            idle=repeats(assignment, belief.answers.codes) | (assignment == 0).all(2),
            rate=rule.frontier.rate_at(rule.steps),
        )

    def _imagined(self, assignment: Tensor, state: State, units: Tensor, task: Task) -> Tensor:
        """(n, c, s): the margin of each candidate by each network, in units of that network's initial margin."""
        said, at_once = list[Tensor](), max(1, _VALUES // state.x.numel())
        for some in assignment.split(at_once, 1):
            x = torch.cat([render(state.bank, each, task.grid) for each in some.unbind(1)])
            y = state.y.repeat(some.shape[1], *(1,) * (state.y.dim() - 1))
            said.append(self._margins(x, y, task).view(some.shape[1], len(state), -1).transpose(0, 1))
        return (torch.cat(said, 1) / units[:, None]).clamp(*RANGE)

    def _margins(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """(n, s)"""
        return torch.stack([task.goal.margin(scores, y) for scores in self.simulator.scores(x)], 1)


@torch.no_grad()
def _make_plans(
    belief: Belief, memory: BeliefState, simulator: SurrogatePrior, state: State, task: Task, unit: Tensor
) -> Tensor:
    """(n, l, p): for each safety, the cheapest of all imagined assignments that flips the simulator by that much.

    Zeros, the untouched input, stand for no plan. `memory` is the belief's before the first query, `unit` (n,) the simulator's
    initial margin.
    """
    env = AttackEnv(lambda x, phase, samples, assignment: simulator.mean_scores(x), replace(task, labels=False))
    clean, assignments, margins = simulator.mean_scores(state.x0), list[Tensor](), list[Tensor]()
    for aim in AIMS:
        # A margin that a noisy model must keep is just what a safe plan has to reach.
        now = env.start(state.y, state.sample, state.seed, state.bank, state.scale, clean, aim * unit / CONFIDENCE)
        imagined = belief.first(memory.geometry, memory.at_input, now, env.task)
        imagined = replace(imagined, answers=replace(imagined.answers, noise=torch.zeros_like(unit)))
        for _ in range(STEPS):
            proposal = belief.propose(now, imagined, env.task)
            now, _ = env.step(now, proposal)
            imagined = belief.observe(now, proposal.memory, env.task)
            assignments.append(proposal.assignment)
            margins.append(task.goal.margin(now.answer, state.y) / unit)
    tried, margin = torch.stack(assignments, 1), torch.stack(margins, 1)
    spent, plans = summed(memory.geometry.cost, tried), []
    for safety in SAFETY:
        least, at = torch.where(margin < -safety, spent, torch.inf).min(1)
        cheapest = tried.gather(1, at[:, None, None].expand(-1, 1, tried.shape[2]))[:, 0]
        plans.append(torch.where(least.isfinite()[:, None], cheapest, 0))
    return torch.stack(plans, 1)


def _after_answer(memory: ImagineState, state: State, task: Task) -> Trust:
    """The trust with the last answer in it, where it answers the last proposal.

    A label says only on which side of the boundary the margin lies.
    """
    if task.labels:
        said, _ = memory.trust.forecast(memory.forecasts[:, None])
        margin = torch.where(state.last_flipped(task), said[:, 0].clamp(max=0), said[:, 0].clamp(min=0))
    else:
        margin = (task.goal.margin(state.answer, state.y) + state.slack) / state.margin0
    after, other = memory.trust.after(memory.forecasts, margin.clamp(*RANGE)), (state.queried != memory.proposed).any(1)
    return after.put(other, memory.trust[other])


def _rules(belief: BeliefState, networks: int) -> Tensor:
    """(n,) bool: rows that query the rule's own candidate, every other time after several misses, as the simulator may mislead."""
    missed, most = belief.idle.long(), MISSES if networks > 1 else 1
    return (missed >= most) & (missed % 2 == 1)


def _improvement(candidates: Candidates, mean: Tensor, deviation: Tensor) -> Tensor:
    """(n, c): the expected improvement of the log distance; what was queried before, or is nothing, improves nothing."""
    gain = torch.special.ndtr(-mean / deviation) * candidates.nearer.clamp(min=0)
    gain = gain.masked_fill(candidates.idle, -1.0)
    gain[:, 0] = gain[:, 0].clamp(min=0) + 1e-9  # the rule's own proposal, if nothing promises more
    return gain
