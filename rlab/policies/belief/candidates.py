"""Candidates for the next query: what the belief would propose if it aimed further, drew differently or only restored.

Shapes: n samples, c candidates, p patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.rng import uniform
from rlab.policies.belief.frontier import Frontier, make_frontier
from rlab.policies.belief.geometry import cost_of
from rlab.policies.belief.rule import Effects, RuleChoice
from rlab.policies.belief.state import BeliefState

SOME = 0.25  # share of the patches whose effects are drawn in a partial draw
# The boldnesses to try, relative to the rule's, by how the effects are drawn. Before the first flip the boldness multiplies the
# drop to aim at; after it, it is the power of the share of the distance.
GROUPS = {
    "drawn": (1.0, 0.7, 1.6),  # all effects; the first candidate is the rule's
    "mean": (1.0, 0.7, 1.6),  # none
    "some": (1.0, 0.7, 1.6, 0.4),  # those of some patches
    "near": (1.0, 0.4),  # all, and only changes of the best flip are kept
}


def make_candidates(rule: RuleChoice, memory: BeliefState, effects: Effects, state: State, task: Task) -> Tensor:
    """(n, c, p): possible next queries for the rule's rival, the rule's own first."""
    rows = torch.arange(len(state), device=state.x.device)
    need, mean = effects.need[rows, rule.rival], effects.mean[rows, rule.rival]
    cost, drawn = memory.geometry.cost, effects.temperature[:, None, None] * effects.deviation
    some = uniform(~state.seed, state.step, mean.shape[2])[:, None] < SOME
    held, at = (state.assignment > 0)[:, None], (state.assignment - 1).clamp(min=0)[:, None]
    frontiers = (
        rule.frontier,
        make_frontier(mean, cost),
        make_frontier(torch.where(some, mean + drawn, mean), cost),
        make_frontier(torch.where(held, (mean + drawn).gather(1, at), 0.0), cost.gather(1, at)),
    )
    free, certain, partial, near = (
        _aimed(frontier, boldnesses, memory, need, state, task)
        for frontier, boldnesses in zip(frontiers, GROUPS.values(), strict=True)
    )
    near = near * state.assignment[:, None]  # the only entry of its frontier is the best flip's own
    return torch.cat([rule.assignment[:, None], free[:, 1:], certain, partial, near], 1)


def _aimed(
    frontier: Frontier, boldnesses: Sequence[float], memory: BeliefState, need: Tensor, state: State, task: Task
) -> Tensor:
    """(n, b, p): the cheapest sets of a frontier with the drop to aim at, or after the flip within the distance to aim at."""
    bold = torch.tensor(boldnesses, device=need.device)
    distance = memory.shrink[:, None] ** bold * state.distance[:, None]
    nearer = frontier.for_cost(cost_of(distance, task.distance, state.x[0].numel()))
    enough = frontier.for_effect(bold * (memory.bold * need)[:, None])
    return frontier.cuts(torch.where(state.margin[:, None] < 0, nearer, enough).clamp(min=1))


def summed(per_change: Tensor, assignment: Tensor) -> Tensor:
    """per_change (n, f, p), assignment (n, c, p) -> (n, c)."""
    return torch.cat([torch.zeros_like(per_change[:, :1]), per_change], 1).gather(1, assignment).sum(2)
