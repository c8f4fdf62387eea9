"""The cheapest sets against all assignments there are, for small palettes and grids."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor

from rlab.policies.belief.frontier import Frontier, make_frontier

F, P = 2, 4
EVERY = torch.tensor(list(itertools.product(range(F + 1), repeat=P)))  # (81, p)


def totals(values: Tensor, assignments: Tensor) -> Tensor:
    """values (f, p) of single changes, assignments (m, p) -> (m,) their sums."""
    padded = torch.cat([torch.zeros_like(values[:1]), values])
    return padded.gather(0, assignments).sum(1)


def problem(seed: int) -> tuple[Tensor, Tensor]:
    """Effects of either sign and costs, some of them zero where the effect is, some of them equal."""
    draw = torch.Generator().manual_seed(seed)
    effect = torch.randn(1, F, P, generator=draw, dtype=torch.float64)
    cost = torch.rand(1, F, P, generator=draw, dtype=torch.float64) + 0.05
    if seed % 3 == 0:
        cost = torch.full_like(cost, 0.5)
    if seed % 4 == 0:
        cost[0, 0, 1] = effect[0, 0, 1] = 0  # an entry that changes nothing there
    return effect, cost


def path(frontier: Frontier) -> list[tuple[list[int], float, float]]:
    """Assignment, cost and effect after each useful step."""
    out = []
    for steps in range(1, int(frontier.useful) + 1):
        at = tensor([steps])
        cost, effect = frontier.cost[0, steps - 1], frontier.effect[0, steps - 1]
        out.append((frontier.cut(at)[0].tolist(), float(cost), float(effect)))
    return out


@dataclass(frozen=True)
class Solved:
    """A problem, its frontier, and the effects and costs of all assignments."""

    effect: Tensor
    cost: Tensor
    frontier: Frontier
    gains: Tensor
    costs: Tensor


@pytest.fixture(params=range(40))
def solved(request: pytest.FixtureRequest) -> Solved:
    effect, cost = problem(request.param)
    return Solved(effect, cost, make_frontier(effect, cost), totals(effect[0], EVERY), totals(cost[0], EVERY))


def test_every_cut_is_the_best_assignment_for_some_rate(solved: Solved) -> None:
    effect, cost, frontier = solved.effect, solved.cost, solved.frontier
    before, spent = 0.0, 0.0
    for assignment, price, gain in path(frontier):
        chosen = tensor([assignment])
        assert float(totals(cost[0], chosen)) == pytest.approx(price)
        assert float(totals(effect[0], chosen)) == pytest.approx(gain)
        assert price > spent  # steps are dearer and dearer in sum, and each brings something
        assert gain > before
        rate = (gain - before) / (price - spent)  # at the cut, this step is just worth it
        assert gain - rate * price == pytest.approx(float((solved.gains - rate * solved.costs).max()), abs=1e-9)
        before, spent = gain, price


def test_the_whole_path_leads_to_the_largest_effect(solved: Solved) -> None:
    effect, frontier = solved.effect, solved.frontier
    most = effect[0].amax(0).clamp(min=0).sum()
    assert float(frontier.effect[0, -1]) == pytest.approx(float(most))
    final = frontier.cut(frontier.useful)[0]
    for patch, entry in enumerate(final.tolist()):
        assert (entry == 0) == bool((effect[0, :, patch] <= 0).all())
        assert entry == 0 or effect[0, entry - 1, patch] == effect[0, :, patch].max()


def test_enough_effect_is_reached_by_the_cheapest_cut_that_does(solved: Solved) -> None:
    frontier = solved.frontier
    cuts = path(frontier)
    for enough in torch.linspace(0.05, 5, 12).tolist():
        steps = int(frontier.for_effect(tensor([enough], dtype=torch.float64)))
        suffice = [i for i, (_, _, gain) in enumerate(cuts, 1) if gain >= enough]
        assert steps == (suffice[0] if suffice else len(cuts))
        if not suffice:
            continue
        price, gain = cuts[steps - 1][1:]
        gains, costs = solved.gains, solved.costs
        # no assignment with as much effect is cheaper, and none that suffices is cheaper by more than the last step's price
        assert price <= float(costs[gains >= gain - 1e-9].min()) + 1e-9
        last = price - (cuts[steps - 2][1] if steps > 1 else 0.0)
        assert price - float(costs[gains >= enough].min()) <= last + 1e-9


def test_a_budget_of_cost_is_kept(solved: Solved) -> None:
    frontier = solved.frontier
    cuts = path(frontier)
    for most in torch.linspace(0.05, 4, 12).tolist():
        steps = int(frontier.for_cost(tensor([most], dtype=torch.float64)))
        below = [i for i, (_, price, _) in enumerate(cuts, 1) if price < most]
        assert steps == (below[-1] if below else 1)  # at least one step, as nothing is no proposal


def test_by_hand_a_dearer_entry_replaces_a_cheaper_one() -> None:
    """Patch 0: entry 1 buys 2 for 1, entry 2 another 1 for 1 more; patch 1: entry 1 buys 3 for 2."""
    effect, cost = tensor([[[2.0, 3.0], [3.0, 1.0]]]), tensor([[[1.0, 2.0], [2.0, 5.0]]])
    frontier = make_frontier(effect, cost)
    assert frontier.useful.tolist() == [3]
    assert [cut for cut, _, _ in path(frontier)] == [[1, 0], [1, 1], [2, 1]]
    assert frontier.cut(tensor([0])).tolist() == [[0, 0]]
    assert frontier.cost[0, :3].tolist() == [1, 3, 4]
    assert frontier.effect[0].tolist() == [2, 5, 6, 6]


def test_what_harms_or_does_nothing_is_never_taken() -> None:
    effect, cost = tensor([[[-1.0, 0.0], [-2.0, 0.0]]]), tensor([[[1.0, 1.0], [0.5, 0.0]]])
    frontier = make_frontier(effect, cost)
    assert frontier.useful.tolist() == [0]
    assert frontier.for_effect(tensor([1.0])).tolist() == [0]
    assert frontier.for_cost(tensor([1.0])).tolist() == [1]
    assert frontier.cut(tensor([0])).tolist() == [[0, 0]]


def test_a_dominated_entry_is_passed_over() -> None:
    """Entry 1 costs more and brings less than entry 2."""
    frontier = make_frontier(tensor([[[1.0], [2.0]]]), tensor([[[3.0], [1.0]]]))
    assert [cut for cut, _, _ in path(frontier)] == [[2]]


def test_rows_are_apart() -> None:
    parts = [problem(seed) for seed in range(5)]
    together = make_frontier(torch.cat([effect for effect, _ in parts]), torch.cat([cost for _, cost in parts]))
    steps = together.for_effect(torch.full((5,), 1.0, dtype=torch.float64))
    for row, (effect, cost) in enumerate(parts):
        alone = make_frontier(effect, cost)
        assert torch.equal(alone.cut(steps[row : row + 1])[0], together.cut(steps)[row])


@settings(max_examples=60)
@given(st.data())
def test_a_path_in_float32_only_grows(data: st.DataObject) -> None:
    """Whatever the numbers, ties and all."""
    values = st.lists(st.integers(-3, 6), min_size=12, max_size=12)
    effect = tensor(data.draw(values)).float().view(1, 3, 4) / 3
    cost = tensor(data.draw(values)).float().clamp(min=0).view(1, 3, 4) / 7
    frontier = make_frontier(effect, cost)
    count = int(frontier.useful)
    assert (frontier.cost[0, :count].diff() > 0).all()
    assert (frontier.effect[0].diff() >= 0).all()
    assert torch.isinf(frontier.cost[0, count:]).all()
    for assignment, price, _ in path(frontier):
        padded = torch.cat([torch.zeros(1, 4), cost[0]])
        assert float(padded[assignment, range(4)].sum()) == pytest.approx(price, abs=1e-5)


def test_a_price_for_each_patch_favours_few() -> None:
    """Three weak patches give more for their cost than a strong one, unless each patch costs something by itself."""
    effect, cost = tensor([[[1.0, 1.0, 1.0, 3.0]]]), tensor([[[0.5, 0.5, 0.5, 2.0]]])
    for price, chosen, spent in ((0.0, [1, 1, 1, 0], 1.5), (1.0, [0, 0, 0, 1], 2.0)):
        frontier = make_frontier(effect, cost, price=tensor([price]))
        steps = frontier.for_effect(tensor([2.9]))
        assert frontier.cut(steps)[0].tolist() == chosen
        assert float(frontier.cost[0, steps - 1]) == pytest.approx(spent)
