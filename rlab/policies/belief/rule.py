"""The fixed rule: what to ask next when nothing was learned about asking.

Before the first flip the cheapest set that a draw from the belief expects to suffice; after it the same, within a share of the best
flip's distance. What was asked before tells nothing new, so the draw grows hotter until something else comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.policies.belief.frontier import Frontier, make_frontier
from rlab.policies.belief.geometry import cost_of
from rlab.policies.belief.posterior import code_of, codes_of

HOTTER = (4, 16, 64)  # draws grow hotter while what they propose was asked before
LEAST = 0.3  # the share of the best flip's distance below which no single step after it goes


@dataclass(frozen=True)
class Effects:
    """What each single change would take off each margin, as believed."""

    mean: Tensor  # (n, a, f, p)
    deviation: Tensor  # (n, f, p) of a draw, the same for all ways
    temperature: Tensor  # (n,) the rule's
    need: Tensor  # (n, a) the drop that flips, of each way


@dataclass(frozen=True)
class RuleChoice:
    """What the fixed rule would ask next."""

    assignment: Tensor  # (n, p)
    way: Tensor  # (n,) the class that is to win
    frontier: Frontier  # of that way
    steps: Tensor  # (n,) how far along it


def follow_rule(memory: dict[str, Tensor], effects: Effects, state: State, task: Task) -> RuleChoice:
    """What the fixed rule asks next, drawn hotter where that was asked before."""
    rows = torch.arange(len(state), device=state.x.device)
    way = likeliest(memory, effects, state)
    choice = cheapest(way, effects, 1, rows, memory, state, task)
    memory["rate"] = choice.frontier.rate_at(choice.steps)
    if choice.assignment.is_cuda:  # sooner done than asking the GPU which rows need it
        return replace(choice, assignment=hotter_at_once(choice, effects, memory, state, task))
    return replace(choice, assignment=hotter_where_needed(choice, effects, memory, state, task))


def hotter_where_needed(
    choice: RuleChoice, effects: Effects, memory: dict[str, Tensor], state: State, task: Task
) -> Tensor:
    """The assignments (n, p), drawn hotter and hotter while they were asked before."""
    assignment, rows = choice.assignment.clone(), torch.arange(len(state), device=state.x.device)
    for hotter in HOTTER:
        rows = rows[(codes_of(memory)[rows] == code_of(assignment[rows])[:, None]).any(1)]
        if not len(rows):
            break
        assignment[rows] = cheapest(choice.way, effects, hotter, rows, memory, state, task).assignment
    return assignment


def hotter_at_once(choice: RuleChoice, effects: Effects, memory: dict[str, Tensor], state: State, task: Task) -> Tensor:
    """The same with all draws of all rows made, so that nothing depends on what is in them."""
    rows = torch.arange(len(state), device=state.x.device).repeat(len(HOTTER))
    heat = torch.cat([torch.full_like(memory["bold"], hotter) for hotter in HOTTER])
    assignment, drawn = choice.assignment, cheapest(choice.way, effects, heat, rows, memory, state, task).assignment
    for hotter in drawn.unflatten(0, (len(HOTTER), -1)):
        again = (codes_of(memory) == code_of(assignment)[:, None]).any(1, keepdim=True)
        assignment = torch.where(again, hotter, assignment)
    return assignment


def likeliest(memory: dict[str, Tensor], effects: Effects, state: State) -> Tensor:
    """(n,): the way that costs least, or after the flip leads furthest, by the dual of that problem.

    At any rate r between effect and cost, sum_p max_f (effect - r cost) + r C bounds the effect that cost C can buy. At
    the rate of the last proposal the bound is nearly met, so it ranks the ways without a frontier of each.
    """
    flipped, cost = (state.margin < 0)[:, None], memory["cost"]
    aim = torch.where(flipped, effects.need, memory["bold"][:, None] * effects.need)
    rate = memory["rate"] if "rate" in memory else (aim / cost.amax(1).sum(1, keepdim=True)).mean(1)
    surplus = (effects.mean - (rate[:, None, None] * cost)[:, None]).amax(2).clamp(min=0).sum(2)
    return (surplus - aim).argmax(1)


def cheapest(
    way: Tensor, effects: Effects, hotter: float | Tensor, rows: Tensor,
    memory: dict[str, Tensor], state: State, task: Task,
) -> RuleChoice:  # fmt: skip
    """The cheapest set for some rows (r,), along the ways (n,), that suffices in a draw so much hotter than the rule's."""
    mean, cost = effects.mean[rows, way[rows]], memory["cost"][rows]
    drawn = mean + (hotter * effects.temperature[rows])[:, None, None] * effects.deviation[rows]
    frontier = make_frontier(drawn, cost, mean)
    enough = memory["bold"][rows] * effects.need[rows, way[rows]]
    flipped, distance, values = state.margin[rows] < 0, state.distance[rows], state.x[0].numel()
    nearer, least = (
        frontier.for_cost(cost_of(share * distance, task.distance, values)) for share in (memory["shrink"][rows], LEAST)
    )
    suffices = frontier.for_effect(enough)
    steps = torch.where(flipped, nearer.minimum(suffices.maximum(least)), suffices).clamp(min=1)
    return RuleChoice(frontier.cut(steps), way, frontier, steps)


def single_change(before: Tensor, wanted: Tensor, effect: Tensor, cost: Tensor, flipped: Tensor) -> Tensor:
    """Of the changes from one assignment (n, p) to another, one: after a flip that which saves most cost for the effect it
    gives up, before it that which brings most effect for its cost; effect and cost (n, f, p) of single changes."""

    def gained(of: Tensor) -> Tensor:
        padded = torch.cat([torch.zeros_like(of[:, :1]), of], 1)
        return padded.gather(1, wanted[:, None])[:, 0] - padded.gather(1, before[:, None])[:, 0]

    brings, costs = gained(effect), gained(cost)
    sign = torch.where(flipped, -1.0, 1.0)[:, None]
    rate = torch.where(flipped[:, None], costs / brings.clamp(max=-1e-9), brings / costs.clamp(min=1e-9))
    rate = torch.where(sign * costs > 0, rate.clamp(-1e9, 1e9), -1e10)
    patch = torch.where(wanted != before, rate, -torch.inf).argmax(1, keepdim=True)
    return before.scatter(1, patch, wanted.gather(1, patch))
