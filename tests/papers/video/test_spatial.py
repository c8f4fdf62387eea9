"""The spatial agent's choices: inside the hierarchy, judged as they were made, blind to frames that were dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlab.core.env import State, Task
from rlab.core.goals import Untargeted
from rlab.papers.video import Pair, PairPolicy
from rlab.papers.video.choices import Hierarchy
from rlab.papers.video.policy import fixed_view
from rlab.papers.video.spatial import SpatialAgent
from rlab.papers.video.view import View, moving
from tests.papers.video.test_policy import pair, started
from tests.papers.video.tubes import GRID, TINY

TASK = Task(GRID, 3, Untargeted(), 100)


def seen(levels: int = 2, n: int = 6, steps: int = 3) -> tuple[Pair, View, State]:
    network = pair(replace(TINY, levels=levels))
    policy = PairPolicy(network, temperature=2.0)
    env, state, memory = started(policy, n)
    for _ in range(steps):
        proposal = policy.propose(state, memory, env.task)
        (state, _), memory = env.step(state, proposal), proposal.memory
    return network, memory.fixed.seen(state, env.task), state


def test_a_compass_adds_how_far_each_change_goes_along_its_directions() -> None:
    network = pair(replace(TINY, heads=2, prior_width=8, prior_levels=1))
    policy = PairPolicy(network)
    env, state, memory = started(policy, 3)
    own = fixed_view(network, state, env.task)
    assert own.changes.shape[3] == network.config.changes == 5
    assert network.compass is not None
    change = state.bank[:, 1:] - state.bank[:, :1]
    with torch.no_grad():
        lead = (change * network.compass(state.x0)[:, :1]).sum(2)  # along the first direction, (n, f, *size)
    by_hand = (env.task.grid.total(lead) * len(env.task.grid)).clamp(-20, 20) / 4
    torch.testing.assert_close(own.changes[:, :, :, 3].flatten(2), by_hand)
    assert (policy.propose(state, memory, env.task).assignment != 0).any()


def test_the_moving_view_reads_the_state() -> None:
    _, _, state = seen()
    view = moving(state, TASK)
    held = state.assignment.view(6, 4, 4, 4)
    for entry in (1, 2, 3):
        assert torch.equal(view["tries"][:, entry - 1, :, 0] == 1, held == entry)
    assert torch.equal(view["patches"][:, :, 0] == 1, held != 0)
    assert torch.isfinite(view["scalars"]).all()


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_choice_is_judged_as_it_was_made(levels: int) -> None:
    network, view, _ = seen(levels)
    hierarchy = network.hierarchy(GRID)
    draw = torch.rand(6, 4, levels + 1, generator=torch.Generator().manual_seed(0))
    kept = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)) < 0.6
    made = network.spatial(view, kept, hierarchy, draw)
    again = network.spatial(view, kept, hierarchy, None, made.option)
    torch.testing.assert_close(made.log_prob, again.log_prob)
    torch.testing.assert_close(made.entropy, again.entropy)
    assert torch.equal(made.region, again.region)
    assert made.option.shape == (6, 4, levels + 1)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_regions_are_cells_of_the_hierarchy(levels: int) -> None:
    network, view, _ = seen(levels, n=40)
    hierarchy = network.hierarchy(GRID)
    cells = {tuple(row) for member in hierarchy.members for row in member.tolist()}
    draw = torch.rand(40, 4, levels + 1, generator=torch.Generator().manual_seed(0))
    region = network.spatial(
        view, torch.ones(40, 4, dtype=torch.bool), hierarchy, draw, temperature=torch.full((40,), 9.0)
    ).region
    found = {tuple(row) for row in region.flatten(0, 1).tolist()}
    assert found <= cells
    sizes = {sum(row) for row in found}
    assert sizes == {1: {4}, 2: {1, 4}, 3: {1, 4}}[levels]  # the middle level of three is single patches here already


def test_a_dropped_frame_changes_nothing_on_those_that_follow() -> None:
    network, view, _ = seen()
    hierarchy = network.hierarchy(GRID)
    draw = torch.rand(6, 4, 3, generator=torch.Generator().manual_seed(0))
    kept = torch.tensor([[True, False, True, True]]).expand(6, 4)
    made = network.spatial(view, kept, hierarchy, draw)
    other = draw.clone()
    other[:, 1] = 1 - other[:, 1]
    again = network.spatial(view, kept, hierarchy, other)
    assert torch.equal(made.option[:, 2:], again.option[:, 2:])
    torch.testing.assert_close(made.log_prob, again.log_prob)


def test_regions_stay_where_they_were_on_the_frame_before() -> None:
    """Staying is a preference from the start; without it chance alone would agree on one cell in sixteen."""
    network, view, _ = seen(n=200, steps=0)
    draw = torch.rand(200, 4, 3, generator=torch.Generator().manual_seed(0))
    everything = torch.ones(200, 4, dtype=torch.bool)
    hierarchy = network.hierarchy(GRID)

    def agreement(agent: SpatialAgent) -> float:
        region = agent(view, everything, hierarchy, draw).region
        return float((region[:, 1:] == region[:, :-1]).all(2).float().mean())

    coherent = agreement(network.spatial)
    network.spatial.stay.data.zero_()
    assert coherent > 2 * agreement(network.spatial)


def test_what_is_written_already_is_not_written_again() -> None:
    network, view, state = seen(n=60, steps=8)
    hierarchy = Hierarchy((4, 4), 2, 2)
    draw = torch.rand(60, 4, 3, generator=torch.Generator().manual_seed(0))
    made = network.spatial(
        view, torch.ones(60, 4, dtype=torch.bool), hierarchy, draw, temperature=torch.full((60,), 9.0)
    )
    held = state.assignment.view(60, 4, 16)
    same = ((held == made.entry[:, :, None]) | ~made.region).all(2)
    assert not same.any()
