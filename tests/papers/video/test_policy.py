"""The pair as a policy: honest counts, chance that belongs to a sample, never stuck, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlab.core.env import Accept, AttackEnv, State, Task
from rlab.core.goals import Untargeted
from rlab.errors import InputError
from rlab.papers.video import Pair, PairConfig, PairPolicy
from rlab.papers.video.choices import Hierarchy
from rlab.papers.video.pair import written
from rlab.papers.video.policy import PairState, random_tubes
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.base import PHASES
from tests.helpers import PALETTE, PATCHES, assert_same, exact_victim, labelled_by, make_batch
from tests.papers.video.tubes import GRID, TINY, bright_victim, tubes

PALETTES = ["dead_pixel@1.0", "gaussian_noise@0.2", "gaussian_blur@1.0"]


def pair(config: PairConfig = TINY, seed: int = 0) -> Pair:
    torch.manual_seed(seed)
    return Pair(config).eval()


def attacked(policy: PairPolicy, n: int = 8, budget: int = 400, **options: Any) -> tuple[AttackResult, int]:
    """An attack on tubes, and the rows the victim counted itself."""
    victim, (batch, _) = bright_victim(), tubes(n)
    attack = make_attack(batch, palette=PALETTES, patch=GRID.patch, policy=policy, budget=budget, seed=3, **options)
    result = run_attack(attack, victim, batch)
    return result, sum(victim.rows.values())


@pytest.mark.parametrize(
    ("levels", "options"),
    [(1, {}), (2, {}), (3, {}), (2, {"adapt": 5}), (1, {"temporal": False}), (2, {"wild": 0.0})],
)
def test_the_tube_is_found_whatever_the_options(levels: int, options: dict[str, Any]) -> None:
    """Untrained, so by search alone; with single patches at the last level cleanup leaves nothing but the tube."""
    result, rows = attacked(PairPolicy(pair(replace(TINY, levels=levels)), **options))
    assert result.succeeded.all()
    assert rows == int(result.queries.sum())
    assert (result.queries.sum(1) <= 400).all()
    place = tubes(8)[1]
    touched = (result.assignment != 0).view(8, 4, 16)
    for i, at in enumerate(place.tolist()):
        assert touched[i, :, at].sum() >= 2
        assert touched[i].sum() == touched[i, :, at].sum()


def test_the_same_seed_gives_the_same_attack_in_any_chunk() -> None:
    policy = PairPolicy(pair())
    whole, _ = attacked(policy, n=3, budget=40)
    assert_same(attacked(policy, n=3, budget=40)[0], whole)
    alone, _ = attacked(policy, n=3, budget=40, chunk=1)
    assert torch.equal(alone.assignment, whole.assignment)
    assert torch.equal(alone.queries, whole.queries)


def test_another_seed_gives_another_attack() -> None:
    victim, (batch, _) = bright_victim(), tubes(4)
    policy = PairPolicy(pair())
    first, second = (
        run_attack(
            make_attack(batch, palette=PALETTES, patch=GRID.patch, policy=policy, budget=30, seed=seed), victim, batch
        )
        for seed in (0, 1)
    )
    assert not torch.equal(first.assignment, second.assignment)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("keep", ["better", "always"])
def test_clips_of_any_channels_and_patch_on_an_exact_victim(channels: int, keep: str) -> None:
    victim = exact_victim(3)
    batch = labelled_by(victim, make_batch(3, 4), wrong=(2,))
    network = pair(replace(TINY, channels=channels, coarse=4, levels=3))
    for patch in (PATCHES[3], (1, 3, 3)):
        victim.rows.clear()
        made = make_attack(
            batch, palette=PALETTE, patch=patch, policy=PairPolicy(network), budget=25, accept=keep, chunk=2
        )
        result = run_attack(made, victim, batch)
        for phase, reported in zip(PHASES, result.queries.sum(0).tolist(), strict=True):
            assert victim.rows[phase] == reported
        assert (result.queries.sum(1) <= 25).all()
        assert made.goal.reached(victim(result.perturbed), batch.y)[result.succeeded].all()


def started(policy: PairPolicy, n: int = 4, entries: int = 3) -> tuple[AttackEnv, State, PairState]:
    victim, (batch, _) = bright_victim(), tubes(n)
    task = Task(GRID, entries, Untargeted(), 100)
    env = AttackEnv(lambda x, sample, phase: victim(x, phase), task)
    bank = torch.stack([batch.x * (1 - 0.1 * i) for i in range(entries + 1)], 1)
    rows = torch.arange(n)
    state = env.start(batch.y, rows, rows + 7, bank, torch.ones(n), victim(batch.x))
    return env, state, policy.begin(state, task)


def test_every_proposal_changes_something_but_never_a_frame_that_was_dropped() -> None:
    policy = PairPolicy(pair())
    env, state, memory = started(policy)
    for _ in range(12):
        proposal = policy.propose(state, memory, env.task)
        assert (proposal.assignment != state.assignment).any(1).all()
        assert proposal.assignment.min() >= 0
        assert proposal.assignment.max() <= 3
        state, _ = env.step(state, proposal)
        memory = proposal.memory


def test_one_step_may_distort_and_restore() -> None:
    """Entry 0 is an option of every frame where something is held."""
    kept, region = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[[1, 0], [0, 1]]]).bool()
    after = written(torch.tensor([[0, 2, 2, 2]]), kept, region, torch.tensor([[1, 0]]))
    assert after.tolist() == [[1, 2, 2, 0]]


def test_adaptation_looks_at_every_entry_on_whole_coarse_tubes_and_keeps_nothing() -> None:
    policy = PairPolicy(pair(), adapt=3)
    assert policy.least_steps(Task(GRID, 3, Untargeted(), 10)) == 4
    env, state, memory = started(policy)
    seen = []
    for _ in range(3):
        proposal = policy.propose(state, memory, env.task)
        assert (proposal.rule == Accept.IF_FLIPPED).all()
        changed = proposal.assignment != 0
        assert (changed.view(4, 4, 16).sum(2) == 4).all()  # a quarter of each of the four frames
        seen.append(proposal.assignment.amax(1))
        state, outcome = env.step(state, proposal)
        memory = proposal.memory
        assert torch.equal(state.assignment[~outcome.done], torch.zeros_like(state.assignment)[~outcome.done])
    assert torch.stack(seen).tolist() == [[1] * 4, [2] * 4, [3] * 4]
    assert not (policy.propose(state, memory, env.task).rule == Accept.IF_FLIPPED).any()


def test_random_tubes_reach_every_patch_and_entry_and_always_change_something() -> None:
    _, state, _ = started(PairPolicy(pair()), n=2)
    many = state[torch.zeros(3000, dtype=torch.int64)]
    draw = torch.rand(3000, 5, generator=torch.Generator().manual_seed(0))
    task = Task(GRID, 3, Untargeted(), 100)
    made = random_tubes(many, task, Hierarchy((4, 4), 2, 2), draw)
    assert (made != 0).any(1).all()
    for entry in (1, 2, 3):
        assert (made == entry).any(0).all()
    assert ((made != 0).sum(1) == 1).any()  # a single patch among them


def test_worth_adds_up_to_the_margin_taken_away() -> None:
    policy = PairPolicy(pair())
    env, state, memory = started(policy)
    for _ in range(6):
        proposal = policy.propose(state, memory, env.task)
        (state, _), memory = env.step(state, proposal), proposal.memory
    worth = policy.contribution(state, env.task)
    held = (state.assignment != 0).any(1)
    assert held.any()
    torch.testing.assert_close(worth.sum(1)[held], (state.margin0 - state.margin)[held], atol=1e-3, rtol=1e-3)
    assert (worth[state.assignment == 0] == 0).all()


@pytest.mark.parametrize("rank", [1, 2])
def test_other_kinds_of_data_are_refused(rank: int) -> None:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 2))
    attack = make_attack(batch, palette=PALETTE, patch=PATCHES[rank], policy=PairPolicy(pair()))
    with pytest.raises(InputError, match="was trained for video"):
        run_attack(attack, victim, batch)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"adapt": -1}, "expected adapt, a number of queries"),
        ({"adapt": 1.5}, "expected adapt, a number of queries"),
        ({"temperature": 0.0}, "expected temperature above 0"),
        ({"distortion_weight": -0.1}, "expected distortion_weight, what a unit of MAP costs"),
        ({"wild": 2.0}, "expected wild, a share of proposals"),
        ({"levels": 3}, "was trained with 2 levels of patches, got 3"),
        ({"levels": 0}, "was trained with 2 levels of patches, got 0"),
    ],
)
def test_options_it_refuses(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PairPolicy(pair(), **options)


def test_an_agent_that_sees_through_mobilenet_asks_for_its_weights() -> None:
    with pytest.raises(InputError, match="sees frames through MobileNet-V2: name its weights"):
        PairPolicy(pair(replace(TINY, encoder="mobilenet")))
    with pytest.raises(InputError, match="expected encoder to be one of small, mobilenet, got 'resnet'"):
        PairConfig(encoder="resnet")  # type: ignore[arg-type]
