"""The dual-action agent: its state, its steps by hand, exact counts, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlab.core.env import AttackEnv, State, Task
from rlab.core.goals import Targeted, Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.papers import dual_action
from rlab.papers.dual_action import (
    DualAction,
    DualActionConfig,
    DualActionNetwork,
    Judgement,
    Shape,
    load_policy,
    train,
)
from rlab.papers.sensitivity import Analysis, Sweep, changes, dilution, log_odds, observe, plan
from rlab.policies import parse_policy
from rlab.storage.config import check
from rlab.training.episodes import EpisodeSampler
from rlab.training.trainer import AGENT
from rlab.victims import Victim
from tests.helpers import PALETTE, PATCHES, exact_victim, labelled_by, make_batch
from tests.test_contract import assert_kept, run

INF = math.inf


class SumVictim(Victim):
    """Class 0 until the brightness of some patches has fallen far enough; the others count for nothing."""

    def __init__(self, grid: PatchGrid, patches: tuple[int, ...], most: float) -> None:
        super().__init__(outputs="logits")
        weight = torch.zeros(len(grid))
        weight[list(patches)] = 1.0
        self.grid, self.weight, self.most = grid, weight, most

    def _predict(self, x: Tensor) -> Tensor:
        bright = (self.grid.reduce(x[:, 0]) * self.weight).sum(1)
        return torch.stack([8 * (bright - self.most), torch.zeros_like(bright)], 1)


GRID = PatchGrid((8, 8), (2, 2))
TINY: dict[str, Any] = {
    "models": ["demo:digits"], "data": {"path": "demo:digits"}, "palettes": [["dead_pixel", "gaussian_noise@0.1"]],
    "validation_palette": ["dead_pixel", "gaussian_noise@0.1"], "entries": 2, "patches": [2], "width": 8, "blocks": 1,
    "rows": 16, "batch": 32, "budget": 60, "validation_samples": 4, "updates": 4, "validations": 2, "sweep": 0.25,
}  # fmt: skip


def data(n: int = 24) -> Batch:
    x = 0.7 + 0.2 * torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Batch(x, torch.zeros(n, dtype=torch.int64))


def trained(folder: Path, victim: Victim, **options: Any) -> Path:
    return train([victim], data(), None, check(DualActionConfig, TINY | options), folder)


def start(entries: int = 2, rows: int = 3) -> tuple[State, Task]:
    task = Task(GRID, entries, Untargeted(), 100)
    x = data(rows).x
    bank = torch.stack([x, *(x * (1 - 0.2 * e) for e in range(1, entries + 1))], 1)
    env = AttackEnv(lambda x, phase, samples, assignment: SumVictim(GRID, (5,), 0.4)(x), task)
    ids = torch.arange(rows)
    return env.start(
        torch.zeros_like(ids), ids, ids + 7, bank, torch.ones(rows), env.query(x, "search", ids, ids)
    ), task


def test_log_odds_are_exact_where_probabilities_are_one() -> None:
    scores = torch.tensor([[30.0, 0.0, 0.0]]).log_softmax(1)
    assert float(log_odds(Untargeted(), scores, torch.tensor([0]))) == pytest.approx(30 - math.log(2), abs=1e-4)
    assert float(log_odds(Targeted(1), scores, torch.tensor([0]))) == pytest.approx(30, abs=1e-4)


def test_dilution_by_hand() -> None:
    before, after, first = torch.tensor([4.0, 0.0]), torch.tensor([3.0, -9.0]), torch.tensor([8.0, 2.0])
    assert dilution(before, after, first, "log_odds").tolist() == [1 / 8, 1.0]  # at most 1
    assert float(dilution(before, after, first, "probability")[1]) == pytest.approx(0.5 - 1 / (1 + math.exp(9)))


@pytest.mark.parametrize(("sweep", "asked"), [("full", 32), ("one_filter", 16), (0.25, 8), (1 / 16, 2)])
def test_a_plan_asks_for_clean_patches_and_filters(sweep: Sweep, asked: int) -> None:
    state, task = start()
    assert plan(state, state.step, task, sweep, True).flatten(1).sum(1).tolist() == [asked] * 3
    seen = torch.stack([plan(state, state.step + turn, task, sweep, True) for turn in range(16)]).any(0)
    assert seen[:, 1:].all()  # in the course of steps, everything


def test_a_distorted_patch_can_only_be_restored() -> None:
    state, _ = start()
    assignment = state.assignment.clone()
    assignment[:, 3] = 2
    legal = changes(assignment, 2, restore=True)
    assert legal[0, :, 3:5].T.tolist() == [[True, False, False], [False, True, True]]
    assert not changes(assignment, 2, restore=False)[:, 0].any()


JUDGED = Judgement(
    value=torch.tensor([10.0]),
    advantage=torch.tensor([[[-INF, -INF, 1.0], [2.0, 6.0, -INF], [4.0, 3.0, -INF]]]),  # patch 2 is distorted
    none=torch.tensor([[2.5, 0.0]]),
)


def test_a_step_takes_the_best_patches_of_one_filter_down_to_none() -> None:
    # The best change is filter 1 at patch 1; patch 0 of the same filter is worse than none; patch 2 is worth restoring.
    assert dual_action.choose(JUDGED, add=2, remove=2).tolist() == [[1 * 3 + 1, -1, 2, -1]]
    content = replace(JUDGED, none=torch.tensor([[9.0, 9.0]]))
    assert dual_action.choose(content, add=2, remove=1).tolist() == [[1 * 3 + 1, -1, -1]]  # one is added at least


def test_the_value_of_a_step_by_hand() -> None:
    slots = torch.tensor([[4, -1, 2]])
    adding, restoring = (2.0 + 6 + 4 + 3 + 2.5) / 5, (1.0 + 0.0) / 2  # means over what is legal and none
    expected = 10 + (6 - adding) + (2.5 - adding) + (1 - restoring)
    assert float(dual_action.step_value(JUDGED, slots, add=2)) == pytest.approx(expected)


def test_drawn_steps_have_the_probability_they_are_given() -> None:
    torch.manual_seed(0)
    many = JUDGED[torch.zeros(20_000, dtype=torch.int64)]
    mild = replace(many, advantage=many.advantage / 4, none=many.none / 4)
    slots, log_prob, entropy = dual_action.draw_slots(mild, 1, 1)
    assert (entropy > 0).all()
    _, again, _ = dual_action.draw_slots(mild, 1, 1, slots)
    assert torch.allclose(log_prob, again)
    for step in slots.unique(dim=0):
        rows = (slots == step).all(1)
        assert float(rows.float().mean()) == pytest.approx(float(log_prob[rows][0].exp()), abs=0.02)


def untrained(**options: Any) -> DualAction:
    torch.manual_seed(0)
    return DualAction(DualActionNetwork(Shape(width=8, blocks=1)), **options)


@pytest.mark.parametrize(
    ("rank", "sweep"),
    [(1, "full"), (2, "one_filter"), (3, 0.25)]
    + [pytest.param(r, s, marks=pytest.mark.slow) for r, s in ((1, 0.25), (2, "full"), (2, 0.25), (3, "full"))],
)
def test_contracts_hold_for_every_rank_and_sweep(rank: int, sweep: Sweep) -> None:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 5), wrong=(1,))
    options = {"patch": PATCHES[rank], "palette": PALETTE, "policy": untrained(sweep=sweep), "budget": 120, "chunk": 2}
    made, result = run(victim, batch, **options)
    assert_kept(made, victim, batch, result)


def test_an_analysis_and_a_step_take_exactly_their_queries() -> None:
    victim, policy = SumVictim(GRID, (5, 6), 0.05), untrained(sweep="full", add=1, epsilon=0.0)
    batch, asked = data(2), 2 * 16
    assert policy.least_steps(Task(GRID, 2, Untargeted(), 100)) == asked + 1
    options: dict[str, Any] = {"patch": 2, "palette": ["dead_pixel@0.5", "gaussian_noise@0.1"], "policy": policy}
    with pytest.raises(OptionError, match="below the cost of one step"):
        run(victim, batch, budget=asked + 2, **options)
    _, result = run(victim, batch, budget=asked + 3, **options)
    assert result.queries.sum(1).tolist() == [1 + asked + 1] * 2  # clean, analysis, step; nothing to verify


def test_the_policy_sees_what_the_training_sees() -> None:
    """The same analysis by single queries and at once."""
    state, task = start()
    victim, policy = SumVictim(GRID, (5,), 0.4), untrained(sweep="full")
    env = AttackEnv(lambda x, phase, samples, assignment: victim(x), task)
    memory = policy.begin(state, task)
    for _ in range(32):
        proposal = policy.propose(state, memory, task)
        state, _ = env.step(state, proposal)
        memory = policy.observe(state, proposal.memory, task)
    single = memory
    sampler = EpisodeSampler(victim, data().x, data().y, (0.0, 1.0), task, [["dead_pixel"]])
    options = check(DualActionConfig, TINY | {"sweep": "full"})
    learner = dual_action.DualActionLearner(policy.network, [sampler], options)
    at_once, _ = learner._analysed(sampler, state, Analysis.start(state, task))
    assert torch.allclose(single.effect, at_once.effect, atol=1e-5)
    assert torch.equal(single.fresh, at_once.fresh)
    assert torch.isfinite(observe(state, single, task, True).cells).all()


@pytest.mark.parametrize("learner", ["dqn", "ppo", "a2c"])
def test_every_learner_trains_and_the_file_is_a_policy(tmp_path: Path, learner: str) -> None:
    path = trained(tmp_path / "out", SumVictim(GRID, (5, 6), 0.6), learner=learner, rollout=2)
    policy = parse_policy(f"dual_action(agent={str(path)!r}, sweep='one_filter', restore=False)")
    assert isinstance(policy, DualAction)
    assert (policy.sweep, policy.restore, policy.add) == ("one_filter", False, 2)
    with pytest.raises(OptionError, match="does not take the options sweeps"):
        load_policy(path, sweeps=1)
    with pytest.raises(OptionError, match="expected sweep to be"):
        load_policy(path, sweep=2.0)


def test_a_stopped_training_ends_with_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, update, calls = SumVictim(GRID, (5, 6), 0.6), dual_action.DualActionLearner.update, list[float]()

    def breaks(self: Any, progress: float) -> Any:
        calls.append(progress)
        if len(calls) == 4:  # in the middle of the second piece
            raise KeyboardInterrupt
        return update(self, progress)

    trained(tmp_path / "whole", victim, keep="last")
    monkeypatch.setattr(dual_action.DualActionLearner, "update", breaks)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", victim, keep="last")
    trained(tmp_path / "stopped", victim, keep="last")
    whole, again = (load_policy(tmp_path / name / AGENT).network.state_dict() for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.slow
def test_the_trained_agent_finds_the_planted_patches_in_fewer_queries_than_random_steps(tmp_path: Path) -> None:
    victim = SumVictim(GRID, (1, 5, 6, 10), 1.2)  # three of four patches must go dark
    options: dict[str, Any] = {"sweep": "full", "updates": 30, "validations": 1, "gradient_steps": 4, "gamma": 0.5}
    policy = load_policy(trained(tmp_path / "out", victim, budget=300, **options), epsilon=0.0)
    test = replace(data(40), x=data(40).x.flip(0))
    shared: dict[str, Any] = {"patch": 2, "palette": ["dead_pixel", "gaussian_noise@0.1"], "budget": 1000}
    queries: dict[float, float] = {}
    for epsilon in (0.0, 1.0):
        _, result = run(victim, test, policy=replace(policy, epsilon=epsilon), cleanup=False, **shared)
        queries[epsilon] = float(result.queries.sum(1).float().median())
    assert queries[0.0] < 100  # two analyses and a step with two of the right patches
    assert queries[0.0] <= 0.5 * queries[1.0]
