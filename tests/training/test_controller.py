"""Training the controller: its equations by hand, learning what is planted, and going on after a stop."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from rlab.errors import InputError
from rlab.policies.belief.controller import CANDIDATES, DESCRIBED, STANDING, Candidates, Controller, read_controller
from rlab.storage.config import check
from rlab.training.arenas import Arena, Episode, area, follow_rule, make_arenas, measure_area, run_episode
from rlab.training.controller import (
    ControllerOptions,
    ControllerTrainer,
    ReplayBuffer,
    area_weight,
    discounts,
    double_q_target,
    n_step_returns,
    train_controller,
    transitions,
)

SOURCE = {
    "models": ["demo:digits"],
    "data": {"path": "demo:digits", "limit": 40},
    "palettes": [["illuminate@0.2..0.6"]],
}
VALUES = {
    "sources": [SOURCE | {"patches": [2], "entries": 2}],
    "rows": 4,
    "steps": 5,
    "batch": 16,
    "width": 8,
    "minutes": 0.001,
    "validation_rows": 4,
}


@pytest.fixture(scope="module")
def options() -> ControllerOptions:
    return check(ControllerOptions, VALUES)


@pytest.fixture(scope="module")
def arena(options: ControllerOptions) -> Arena:
    ((source, victims, batch),) = options.load()
    return make_arenas(source, victims, batch, options.steps, options.seed)[0]


def test_weights_and_discounts_by_hand() -> None:
    assert area_weight(torch.tensor([2.0, 8.0, 9.0]), 8).tolist() == pytest.approx([math.log(4), 0, 0])
    gamma = discounts(3, 100)  # of the steps that ask queries 2, 3 and 4
    assert gamma.tolist() == pytest.approx([math.log(100 / (q + 1)) / math.log(100 / q) for q in (2, 3, 4)])


def test_the_return_is_the_area_under_the_curve() -> None:
    height, horizon = torch.tensor([2.0, 1.5, 1.5, 0.25]), 5  # after queries 1 to 4
    reward = height[:-1] - height[1:]
    steps = torch.cat([torch.ones(1), discounts(3, horizon)[:-1].cumprod(0)])
    widths = torch.tensor([math.log((q + 1) / q) for q in (2, 3, 4)])  # of the curve over the logarithm of the queries
    below_start = ((height[0] - height[1:]) * widths).sum()
    assert (steps * reward).sum() * math.log(horizon / 2) == pytest.approx(float(below_start))


def test_returns_over_several_steps_by_hand() -> None:
    reward, failed = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]), torch.zeros(3, 2, dtype=torch.bool)
    failed[1:, 1] = True  # the second row is terminated by its second step
    total, factor, after = n_step_returns(reward, torch.tensor([0.5, 0.5, 0.25]), failed, 2)
    assert total[:, 0].tolist() == [2.0, 4.0, 4.0]
    assert factor[:, 0].tolist() == [0.25, 0.125, 0.25]  # cut by its length, the episode bootstraps
    assert total[:2, 1].tolist() == [2.0, 2.0]
    assert factor[:2, 1].tolist() == [0.0, 0.0]  # terminated, it does not
    assert after.tolist() == [2, 3, 3]


def test_double_q_learning_takes_the_online_choice_at_the_targets_value() -> None:
    online, target = torch.tensor([[1.0, 5.0]]), torch.tensor([[7.0, 3.0]])
    assert double_q_target(torch.tensor([1.0]), torch.tensor([0.5]), online, target).tolist() == [2.5]


def test_the_buffer_forgets_the_oldest() -> None:
    buffer = ReplayBuffer(4)
    buffer.extend({"a": torch.arange(3)})
    assert len(buffer) == 3
    buffer.extend({"a": torch.arange(3, 6)})
    assert sorted(buffer.columns["a"].tolist()) == [2, 3, 4, 5]
    assert set(buffer.sample(50)["a"].tolist()) == {2, 3, 4, 5}


def test_the_area_reads_the_curve_at_its_points() -> None:
    height = torch.zeros(6, 1)
    height[2], height[4], height[3] = 1.0, 2.0, 99.0  # after queries 3, 5 and 4
    assert area(height).tolist() == [1.5]


def test_rewards_are_falls_of_the_log_distance(arena: Arena) -> None:
    episode = run_episode(arena, 6, 5, follow_rule)
    assert (episode.reward >= 0).all()
    assert episode.reward.sum() > 0
    assert torch.allclose(episode.reward.sum(0), episode.height[0] - episode.height[-1], atol=1e-5)
    assert len(episode.seen) == 6
    assert not episode.failed.any()


def test_the_same_seed_is_the_same_attack(arena: Arena) -> None:
    once, again = (measure_area(arena, choose, 5, 5, seed=3) for choose in (follow_rule, Controller().choose))
    assert torch.equal(once, again)


def test_steps_after_a_failure_are_not_learned_from(options: ControllerOptions) -> None:
    seen = [_candidates(2) for _ in range(4)]
    failed = torch.tensor([[False, False], [False, True], [False, True]])
    zeros = torch.zeros(3, 2)
    rows = transitions(Episode(seen, zeros.long(), zeros, failed, torch.zeros(4, 2)), options)
    assert len(rows["reward"]) == 5
    assert rows["described"].shape == rows["after_described"].shape


def _candidates(n: int) -> Candidates:
    c = len(CANDIDATES)
    described, standing = torch.randn(n, c, DESCRIBED), torch.randn(n, STANDING)
    return Candidates(torch.zeros(n, c, 4).long(), described, standing, torch.ones(n, c).bool(), torch.zeros(n, c))


def test_it_learns_which_candidate_pays() -> None:
    torch.manual_seed(0)
    options = check(ControllerOptions, VALUES | {"batch": 128, "learning_rate": 0.01})
    trainer = ControllerTrainer(Controller(16), [], options)
    seen = _candidates(500)
    action = torch.randint(len(CANDIDATES), (500,))
    paid = seen.described[torch.arange(500), action, 0]  # the first thing said of a candidate is what it brings
    columns = {"described": seen.described, "standing": seen.standing, "legal": seen.legal}
    after = {f"after_{name}": value for name, value in columns.items()}
    trainer.buffer.extend(columns | after | {"action": action, "reward": paid, "factor": torch.zeros(500)})
    for _ in range(150):
        trainer._update()
    fresh = _candidates(200)
    assert (trainer.online.choose(fresh) == fresh.described[..., 0].argmax(1)).float().mean() > 0.7


def test_training_writes_a_controller_and_does_not_begin_again(options: ControllerOptions, tmp_path: Path) -> None:
    told: list[dict[str, float]] = []
    path = train_controller(options.load(), options, tmp_path / "out", told.append)
    _, card = read_controller(str(path))
    assert card["config"]["sources"][0]["models"][0]["name"] == "demo:digits"
    assert card["gains"].keys() == {"demo:digits (2, 2) none"}
    assert told[-1]["progress"] == 1
    assert math.isfinite(told[-1]["loss"])
    before, count = path.read_bytes(), len(told)
    assert train_controller(options.load(), options, tmp_path / "out", told.append) == path
    assert path.read_bytes() == before
    assert len(told) == count
    other = options.model_copy(update={"steps": 6})
    with pytest.raises(InputError, match="steps"):
        train_controller(other.load(), other, tmp_path / "out")


def test_a_training_that_was_stopped_goes_on(options: ControllerOptions, tmp_path: Path) -> None:
    long = options.model_copy(update={"minutes": 60.0, "validation_interval": 1e-6})

    def stop(figures: dict[str, float]) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train_controller(long.load(), long, tmp_path / "out", stop)
    assert len((tmp_path / "out" / "log.jsonl").read_text().splitlines()) == 2
