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
PRICE = 2.5  # the most that a patch costs besides its change, in units of what the mean patch of the best flip costs
DEARER = 20  # queries from the calm on until it costs that
THINNING = (0.25, 1.0, 4.0, 16.0, 64.0)  # prices in the same unit, tried in turn to find sets of few patches
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
    """Of the sets with fewer patches than the best flip, within `most` (n,), the one with the fewest that suffices in a draw.

    If none suffices, it is the one with the greatest effect, and zeros if there is none that was not queried before.
    """
    rival = likeliest(memory, effects, state)
    rows, values = torch.arange(len(rival), device=rival.device), state.x[0].numel()
    mean, cost, need = effects.mean[rows, rival], memory.geometry.cost, effects.need[rows, rival]
    drawn = mean + effects.temperature[:, None, None] * effects.deviation
    limit, known = cost_of(most, task.distance, values), (state.assignment > 0).sum(1)
    each = cost_of(state.distance, task.distance, values) / known.clamp(min=1)
    found, best = torch.zeros_like(state.assignment), torch.full_like(need, -torch.inf)
    for price in THINNING:  # the higher, the fewer patches
        frontier = make_frontier(drawn, cost, mean, price * each)
        steps = frontier.for_cost(limit).minimum(frontier.for_effect(need)).clamp(min=1)
        proposed, last = frontier.cut(steps), (steps - 1)[:, None]
        effect = frontier.effect.gather(1, last)[:, 0].minimum(need)
        patches = (proposed > 0).sum(1)
        fits = (frontier.cost.gather(1, last)[:, 0] <= limit) & (patches > 0) & (patches < known)
        better = fits & (effect >= best) & ~repeats(proposed, memory.answers.codes)
        found, best = torch.where(better[:, None], proposed, found), torch.where(better, effect, best)
    return found


def _price(queries: Tensor) -> Tensor:
    """(n,): what a patch costs, in units of the mean one: nothing while the search still gains."""
    return PRICE * ((queries - CALM) / DEARER).clamp(0, 1)
