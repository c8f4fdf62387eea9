"""Try candidates on a simulator, which costs no query, and query the one that promises most.

A simulator is a set of networks that stand in for the victim: models that you have, or students of the victim. The candidates
are draws of the belief, bold and cautious, and plans made on the simulator beforehand. Each candidate's margin is forecast from
what the networks and the belief say of it, weighted by how right they have been about this sample (see trust), and the policy
queries the candidate with the largest expected improvement of the log distance.
Shapes: n samples, c candidates, s networks, p patches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task, render
from rlab.errors import OptionError
from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.answers import repeats
from rlab.policies.belief.candidates import make_candidates, summed
from rlab.policies.belief.geometry import distance_of
from rlab.policies.belief.rule import follow_rule
from rlab.policies.belief.state import BeliefState
from rlab.policies.imagine.plan import make_plans
from rlab.policies.imagine.trust import Trust
from rlab.priors.surrogates import SurrogatePrior

LEAST = 0.3  # of the victim's initial margin: the least unit of a network's own
RANGE = (-1.5, 2.0)  # of margins, in units of the initial one: beyond it they say nothing about the boundary
OTHER = 7919  # between the seeds of the draws


@dataclass(frozen=True)
class ImagineState(Rows):
    """What the policy remembers of each sample."""

    belief: BeliefState
    plans: Tensor  # (n, l, p)
    units: Tensor  # (n, s) the networks' initial margins
    trust: Trust
    forecasts: Tensor  # (n, s + 2) of the last proposal


@dataclass(frozen=True)
class ImaginePolicy(Policy[ImagineState]):
    """The belief search with a simulator that chooses among its candidates; the simulator is also the belief's prior."""

    belief: BeliefPolicy = field(repr=False)
    draws: int = 3  # of the belief, each with a dozen candidates
    plan: bool = True  # whether to attack the simulator before the first query

    def __post_init__(self) -> None:
        if not isinstance(self.draws, int) or self.draws < 1:
            raise OptionError(f"expected draws, a number of draws, from 1 up, got {self.draws!r}")

    @property
    def simulator(self) -> SurrogatePrior:
        assert isinstance(self.belief.prior, SurrogatePrior)
        return self.belief.prior

    @property
    def reduces(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"imagine with {self.simulator}"

    def by_labels(self) -> Policy[Any]:
        return self.belief

    @torch.no_grad()
    def begin(self, state: State, task: Task) -> ImagineState:
        belief = self.belief.begin(state, task)
        floor = LEAST * state.margin0
        units = self._margins(state.x0, state.y, task).maximum(floor[:, None])
        unit = task.goal.margin(self.simulator.mean_scores(state.x0), state.y).maximum(floor)
        plans = state.assignment[:, None, :][:, :0]
        if self.plan:
            plans = make_plans(self.belief, self.simulator, state, task, unit, belief.geometry.cost)
        trust = Trust.first(units.shape[1], state.margin)
        return ImagineState(belief, plans, units, trust, units.new_zeros(len(units), units.shape[1] + 2))

    @torch.no_grad()
    def propose(self, state: State, memory: ImagineState, task: Task) -> Proposal[ImagineState]:
        trust = memory.trust
        if memory.belief.proposals:
            answer = task.goal.margin(state.answer, state.y) + state.slack
            trust = trust.after(memory.forecasts, (answer / state.margin0).clamp(*RANGE))
        belief = self.belief.learn(state, memory.belief, task)
        proposed, expected, rate = self._candidates(state, belief, memory.plans, task)
        forecasts = torch.cat([self._imagined(proposed, state, memory.units, task), _believed(expected)], 2)
        mean, deviation = trust.forecast(forecasts)
        choice = self._improvement(proposed, mean / deviation, belief, state, task).argmax(1)
        rows = torch.arange(len(state), device=choice.device)
        belief = replace(belief, rate=rate, proposals=belief.proposals + 1)
        after = ImagineState(belief, memory.plans, memory.units, trust, forecasts[rows, choice])
        return Proposal(proposed[rows, choice], torch.full_like(state.step, Accept.IF_NEARER), after)

    def _candidates(
        self, state: State, belief: BeliefState, plans: Tensor, task: Task
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Assignments (n, c, p) with the rule's own first, their expected drops (n, c), and the rule's rate (n,)."""
        sets, first = list[Tensor](), None
        for number in range(self.draws):
            drawn = replace(state, seed=state.seed + OTHER * number)
            effects = self.belief.draw(drawn, belief, task)
            rule = follow_rule(belief, effects, drawn, task)
            sets.append(make_candidates(rule, belief, effects, drawn, task))
            first = first or (rule, effects)
        assert first is not None
        rule, effects = first
        rows = torch.arange(len(state), device=plans.device)
        proposed = torch.cat([*sets, plans], 1)
        mean, need = effects.mean[rows, rule.rival], effects.need[rows, rule.rival]
        return proposed, summed(mean, proposed) / need[:, None], rule.frontier.rate_at(rule.steps)

    def _imagined(self, proposed: Tensor, state: State, units: Tensor, task: Task) -> Tensor:
        """(n, c, s): the margin of each candidate by each network, in units of that network's initial margin."""
        said = [self._margins(render(state.bank, each, task.grid), state.y, task) for each in proposed.unbind(1)]
        return (torch.stack(said, 1) / units[:, None]).clamp(*RANGE)

    def _margins(self, x: Tensor, y: Tensor, task: Task) -> Tensor:
        """(n, s)"""
        return torch.stack([task.goal.margin(scores, y) for scores in self.simulator.scores(x)], 1)

    def _improvement(self, proposed: Tensor, standard: Tensor, belief: BeliefState, state: State, task: Task) -> Tensor:
        """(n, c): the expected improvement of the log distance; what was queried before, or is nothing, improves nothing."""
        values, cost = state.x[0].numel(), belief.geometry.cost
        far = distance_of(cost.amax(1).sum(1), task.distance, values)
        best = torch.where(state.margin < 0, state.distance, far)[:, None].clamp(min=1e-12)
        distance = distance_of(summed(cost, proposed), task.distance, values).clamp(min=1e-12)
        flips = torch.special.ndtr(-standard)
        gain = flips * (best / distance).log().clamp(min=0)
        idle = repeats(proposed, belief.answers.codes) | (proposed == 0).all(2)
        gain = gain.masked_fill(idle, -1.0)
        gain[:, 0] = gain[:, 0].clamp(min=0) + 1e-9  # the rule's own proposal, if nothing promises more
        return gain


def _believed(expected: Tensor) -> Tensor:
    """(n, c) -> (n, c, 2): the margin that the belief expects, and a constant."""
    return torch.stack([(1 - expected).clamp(*RANGE), torch.ones_like(expected)], 2)
