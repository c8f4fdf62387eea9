"""The search beyond the flip: what it adds, how far it goes, and its queries."""

from __future__ import annotations

import math

import pytest
import torch

from rlab.benchmarking.config import LadderLevel
from rlab.benchmarking.goals import LeadingGoal
from rlab.benchmarking.ladder_search import NEAR, LadderSearch, add, growth, spent
from rlab.core.distances import l2
from rlab.core.env import Accept, AttackEnv, State, Task, propose, render
from rlab.core.goals import Targeted, Untargeted
from rlab.filters.palette import Palette
from rlab.victims.meter import QueryMeter
from tests.helpers import CHANNELS, RANKS, exact_victim, labelled_by, make_batch, make_grid

PALETTE = ["gaussian_noise@0.1,0.4", "dead_pixel@0.5"]


def flipped(rank: int, goal: LeadingGoal, n: int = 12) -> tuple[QueryMeter, State]:
    """Rows a few random patches beyond the goal, as an attack leaves them."""
    victim, grid = exact_victim(rank), make_grid(rank)
    batch = labelled_by(victim, make_batch(rank, n))
    palette = Palette.of(PALETTE, rank, CHANNELS[rank])
    bank = palette.bank(batch.x, batch.bounds, list(range(n)))
    meter = QueryMeter(victim, n)
    env = AttackEnv(meter.query, Task(grid, len(palette), goal, 100))
    state = env.start(batch.y, torch.arange(n), torch.arange(n), bank, torch.ones(n), victim(batch.x))
    draw = torch.Generator().manual_seed(1)
    for _ in range(60):
        patch = torch.randint(0, len(grid), (n,), generator=draw)
        wanted = state.assignment.clone()
        wanted[torch.arange(n), patch] = torch.randint(1, len(palette) + 1, (n,), generator=draw)
        wanted[state.margin < 0] = state.assignment[state.margin < 0]
        state, _ = env.step(state, propose(wanted, Accept.IF_BETTER))
    meter.counts.zero_()
    victim.rows.clear()
    return meter, state[state.margin < 0]


def search_for(rank: int, goal: LeadingGoal, steps: int = 12) -> LadderSearch:
    return LadderSearch(make_grid(rank), goal, steps, 1.0)


@pytest.mark.parametrize("rank", RANKS)
def test_distance_levels_are_reached_and_not_exceeded_and_only_grow(rank: int):
    goal = LeadingGoal(Untargeted(), 0.01)
    meter, state = flipped(rank, goal)
    assert len(state) >= 3
    search, start = search_for(rank, goal), l2(state.x0, state.x)
    reached = 0
    for value in (1.3, 1.8):
        before, queries = state, int(meter.counts.sum())
        state, reasons = search.to(meter, state, LadderLevel("level", "times", value), start)
        assert torch.equal(state.sample, before.sample)
        assert torch.equal(render(state.bank, state.assignment, search.grid), state.x)
        assert goal.reached(meter.victim(state.x, "train"), state.y).all()
        grew = search.cost(state).gather(1, state.assignment[:, None]) >= search.cost(state).gather(
            1, before.assignment[:, None]
        )
        assert grew.all()
        far = l2(state.x0, state.x)
        assert (far <= value * start * (1 + 1e-4)).all()
        for reason, distance, target in zip(reasons, far.tolist(), (value * start).tolist(), strict=True):
            assert (not reason) == (distance >= NEAR * target - 1e-4)
        reached += sum(not reason for reason in reasons)
        assert int(meter.counts.sum()) - queries <= len(state) * (search.steps + 10)
    assert reached >= len(state)  # at least half of both levels


def test_queries_equal_the_victims_own_count():
    goal = LeadingGoal(Untargeted(), 0.01)
    meter, state = flipped(2, goal)
    state, _ = search_for(2, goal).to(meter, state, LadderLevel("level", "times", 1.5), l2(state.x0, state.x))
    assert int(meter.counts.sum()) == sum(meter.victim.rows.values()) > 0


def test_a_level_within_reach_of_the_one_before_is_no_new_set():
    goal = LeadingGoal(Untargeted(), 0.01)
    meter, state = flipped(1, goal)
    start = l2(state.x0, state.x)
    search = LadderSearch(make_grid(1), goal, 1, 1.0)
    after, reasons = search.to(meter, state, LadderLevel("level", "times", 1.000001), start)
    same = (after.assignment == state.assignment).all(1).tolist()
    assert all(reason for reason, is_same in zip(reasons, same, strict=True) if is_same)


def test_absolute_levels_below_the_flip_give_a_reason():
    goal = LeadingGoal(Untargeted(), 0.01)
    meter, state = flipped(2, goal)
    after, reasons = search_for(2, goal).to(meter, state, LadderLevel("level", "l2", 1e-3), l2(state.x0, state.x))
    assert torch.equal(after.assignment, state.assignment)
    assert all("beyond 0.001" in reason for reason in reasons)
    assert int(meter.counts.sum()) == 0


def test_a_deeper_error_rewards_only_what_keeps_the_error():
    scores = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.6, 0.3, 0.1]]).log()
    labels = torch.zeros(3, dtype=torch.int64)
    margin = LeadingGoal(Untargeted(), 0.0, deeper=True).margin(scores, labels)
    assert margin[0] < margin[1] < margin[2]
    assert float(margin[0]) == pytest.approx(20 + math.log(0.1 / 0.8))
    assert margin[2] > 100


def test_a_margin_requires_a_lead_and_is_otherwise_the_goal():
    scores = torch.tensor([[0.49, 0.51], [0.2, 0.8]]).log()
    labels = torch.zeros(2, dtype=torch.int64)
    assert Untargeted().reached(scores, labels).tolist() == [True, True]
    leading = LeadingGoal(Untargeted(), 0.1)
    assert leading.reached(scores, labels).tolist() == [False, True]
    assert torch.equal(leading.alternatives(scores, labels).amin(1), leading.margin(scores, labels))
    assert str(LeadingGoal(Targeted(1), 0.1)) == "targeted:1"


def test_additions_fit_the_room_by_hand():
    cost = torch.tensor([[[0.0, 0.0, 0.0], [1.0, 4.0, 2.0], [3.0, 1.0, 9.0]]])
    assignment = torch.tensor([[0, 0, 1]])
    assert spent(cost, assignment).tolist() == [2.0]
    added = growth(cost, assignment)
    assert added[0, 2].tolist() == [3.0, 1.0, 7.0]
    assert torch.isinf(added[0, :2, 2]).all()  # back to nothing, or the same again
    score = torch.tensor([[[0.0, 0.0, 0.0], [0.5, 0.9, 0.0], [0.4, 0.1, 0.8]]])
    pick = add(assignment, added, score, torch.tensor([5.0]), torch.tensor([9]))
    assert pick.tolist() == [[1, 1, 1]]  # 4 + 1; 7 does not fit, though its score is second
    assert add(assignment, added, score, torch.tensor([5.0]), torch.tensor([1])).tolist() == [[0, 1, 1]]
    assert add(assignment, added, score, torch.tensor([0.5]), torch.tensor([9])).tolist() == [[0, 0, 1]]
