"""The rule: which assignment to query next.

Before the first flip it is the cheapest set that should suffice in a draw from the belief; after it, the same within a share of
the best flip's distance. A query that was made before teaches nothing, so the draw grows hotter until another set results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.pruning import CALM
from rlab.policies.belief.answers import repeats
from rlab.policies.belief.frontier import Frontier, make_frontier
from rlab.policies.belief.geometry import cost_of
from rlab.policies.belief.state import BeliefState

HOTTER = (4, 16, 64)  # factors on the temperature, tried in turn while a draw repeats an earlier query
THINNER = (8.0, 2.0, 0.5)  # the same for a flip with fewer patches; the last that repeats no earlier query counts
HALVINGS = 12  # of the rate at which a flip with fewer patches is bought
PRICE = 2.5  # the most that a patch costs besides its change, in units of what the mean patch of the best flip costs
DEARER = 20  # queries from the calm on until it costs that
LEAST = 0.3  # no single step after a flip aims below this share of its distance


@dataclass(frozen=True)
class Effects:
    """How much each single change lowers each margin, as believed."""

    mean: Tensor  # (n, a, f, p)
    deviation: Tensor  # (n, f, p) of a draw, the same for all rivals
    temperature: Tensor  # (n,)
    need: Tensor  # (n, a) the drop that flips, for each rival


@dataclass(frozen=True)
class RuleChoice:
    """What the rule would query next."""

    assignment: Tensor  # (n, p)
    rival: Tensor  # (n,) the rival that should win
    frontier: Frontier  # for that rival
    steps: Tensor  # (n,) how far along the frontier


def follow_rule(memory: BeliefState, effects: Effects, state: State, task: Task) -> RuleChoice:
    """The rule's choice, drawn hotter where it repeats an earlier query."""
    rows = torch.arange(len(state), device=state.x.device)
    rival = likeliest(memory, effects, state)
    choice = cheapest(rival, effects, torch.ones_like(memory.bold), rows, memory, state, task)
    return replace(choice, assignment=redraw(choice, effects, memory, state, task))


def redraw(choice: RuleChoice, effects: Effects, memory: BeliefState, state: State, task: Task) -> Tensor:
    """The assignments (n, p); those that repeat an earlier query are replaced by the first hotter draw that does not."""
    codes = memory.answers.codes
    rows = rows_to_redraw(repeats(choice.assignment, codes))
    if not len(rows):
        return choice.assignment
    factors = torch.cat([torch.full_like(memory.bold[rows], factor) for factor in HOTTER])
    hotter = cheapest(choice.rival, effects, factors, rows.repeat(len(HOTTER)), memory, state, task).assignment
    assignment, codes = choice.assignment[rows], codes[rows]
    for drawn in hotter.unflatten(0, (len(HOTTER), -1)):
        assignment = torch.where(repeats(assignment, codes)[:, None], drawn, assignment)
    return choice.assignment.index_copy(0, rows, assignment)


def rows_to_redraw(repeated: Tensor) -> Tensor:
    """repeated (n,) bool -> the rows to draw again; all rows on a GPU, where reading the mask would take longer."""
    every = torch.arange(len(repeated), device=repeated.device)
    return every if repeated.is_cuda else every[repeated]


def likeliest(memory: BeliefState, effects: Effects, state: State) -> Tensor:
    """(n,): the rival that costs least, or after the flip the one that leads furthest, by the dual of that problem.

    At any rate r between effect and cost, sum_p max_f (effect - r cost) + r C bounds the effect that cost C can buy. At the
    rate of the last proposal the bound is nearly tight, so it ranks the rivals without computing a frontier for each.
    """
    aim = torch.where((state.margin < 0)[:, None], effects.need, memory.bold[:, None] * effects.need)
    surplus = (effects.mean - (memory.rate[:, None, None] * memory.geometry.cost)[:, None]).amax(2).clamp(min=0).sum(2)
    return (surplus - aim).argmax(1)


def first_rate(bold: Tensor, need: Tensor, cost: Tensor) -> Tensor:
    """(n,): the rate before the first proposal: what is needed over the cost of changing everything."""
    return (bold[:, None] * need / cost.amax(1).sum(1, keepdim=True)).mean(1)


def cheapest(
    rival: Tensor, effects: Effects, hotter: Tensor, rows: Tensor, memory: BeliefState, state: State, task: Task
) -> RuleChoice:
    """For some rows (r,) the cheapest set that makes their rival (n,) win in a draw at `hotter` (r,) times the temperature."""
    chosen = rival[rows]
    mean, cost = effects.mean[rows, chosen], memory.geometry.cost[rows]
    drawn = mean + (hotter * effects.temperature[rows])[:, None, None] * effects.deviation[rows]
    flipped, distance, values = state.margin[rows] < 0, state.distance[rows], state.x[0].numel()
    price = _price(memory.calm.queries)[rows] * cost_of(distance, task.distance, values)
    patches = (state.assignment[rows] > 0).sum(1).clamp(min=1)
    frontier = make_frontier(drawn, cost, mean, price / patches)
    enough = memory.bold[rows] * effects.need[rows, chosen]
    nearer, least = (
        frontier.for_cost(cost_of(share * distance, task.distance, values)) for share in (memory.shrink[rows], LEAST)
    )
    suffices = frontier.for_effect(enough)
    steps = torch.where(flipped, nearer.minimum(suffices.maximum(least)), suffices).clamp(min=1)
    return RuleChoice(frontier.cut(steps), rival, frontier, steps)


def fewest(memory: BeliefState, effects: Effects, state: State, task: Task, most: Tensor) -> Tensor:
    """Assignments (n, p) with fewer patches than the best flips, within the distances `most` (n,), likeliest to flip in a draw.

    They are the coolest draws that repeat no earlier query, and zeros where each does.
    """
    rival = likeliest(memory, effects, state)
    rows, values = torch.arange(len(rival), device=rival.device), state.x[0].numel()
    mean, limit = effects.mean[rows, rival], cost_of(most, task.distance, values)
    fewer, found = (state.assignment > 0).sum(1) - 1, torch.zeros_like(state.assignment)
    for factor in THINNER:
        drawn = mean + (factor * effects.temperature)[:, None, None] * effects.deviation
        proposed = strongest(drawn, memory.geometry.cost, limit, fewer)
        found = torch.where(repeats(proposed, memory.answers.code)[:, None], found, proposed)
    return found


def strongest(effect: Tensor, cost: Tensor, limit: Tensor, count: Tensor) -> Tensor:
    """The assignments (n, p) of at most `count` (n,) patches with the greatest effect within a cost of `limit` (n,).

    effect and cost (n, f, p). At a rate r between them the best patches maximise effect - r cost; a bisection finds the least
    rate at which they cost no more than the limit.
    """

    def at(rate: Tensor) -> tuple[Tensor, Tensor]:
        worth, entry = (effect - rate[:, None, None] * cost).max(1)
        rank = worth.sort(dim=1, descending=True, stable=True).indices.argsort(1)
        taken = (rank < count[:, None]) & (worth > 0)
        spent = torch.where(taken, cost.gather(1, entry[:, None])[:, 0], 0.0).sum(1)
        return torch.where(taken, entry + 1, 0), spent <= limit

    low, high = torch.zeros_like(limit), count * effect.amax((1, 2)).clamp(min=0) / limit.clamp(min=1e-30)
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        fits = at(rate)[1]
        low, high = torch.where(fits, low, rate), torch.where(fits, rate, high)
    return at(high)[0]


def _price(queries: Tensor) -> Tensor:
    """(n,): what a patch costs, in units of the mean one: nothing while the search still gains."""
    return PRICE * ((queries - CALM) / DEARER).clamp(0, 1)
