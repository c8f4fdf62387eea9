"""PPO on a planted victim: it learns where the tube is, from rewards alone; checkpoints bring everything back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlab.core.env import Task, render
from rlab.core.goals import Untargeted
from rlab.papers.video import Pair, PairPolicy
from rlab.papers.video.actors import ChosenDistribution
from rlab.papers.video.ppo import PPOConfig, PPOTrainer, RewardedSampler
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.training.episodes import EpisodeSampler
from rlab.victims.torch_module import TorchVictim
from tests.papers.video.tubes import GRID, TINY, bright_victim, learner, sampler, tubes


def searched(pair: Pair) -> float:
    """Median queries of the search on clips that were not trained on."""
    batch, _ = tubes(24, seed=9)
    policy = PairPolicy(pair.eval())
    made = make_attack(batch, palette=["dead_pixel@1.0"], patch=GRID.patch, policy=policy, budget=200)
    found = run_attack(made, bright_victim(), batch).summary()
    pair.train()
    assert found["success"] == 1
    return found["median_search"]


@pytest.mark.slow
def test_the_agents_learn_where_the_tube_is() -> None:
    made = learner(rows=24, batch=96)
    before = searched(made.pair)
    for i in range(10):
        figures = made.round(i / 10)
    assert all(torch.isfinite(torch.tensor(value)) for value in figures.values())
    assert before >= 8
    assert searched(made.pair) <= 3  # the clean prediction and one or two proposals


def test_training_is_the_same_under_the_same_seed() -> None:
    first, second = learner(rows=8, batch=16), learner(rows=8, batch=16)
    torch.manual_seed(1)
    one = first.round(0.0)
    torch.manual_seed(1)
    other = second.round(0.0)
    assert one["loss"] == other["loss"]
    for a, b in zip(first.pair.parameters(), second.pair.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_brings_everything_back() -> None:
    made = learner(rows=8, batch=16)
    made.round(0.0)
    saved = made.state_dict()
    other = learner(rows=8, batch=16)
    other.load_state_dict(saved)
    for a, b in zip(made.parameters, other.parameters, strict=True):
        assert torch.equal(a, b)
    assert other.optimizer.state_dict()["state"].keys() == made.optimizer.state_dict()["state"].keys()


def test_one_agent_alone_keeps_every_frame_and_leaves_the_other_untrained() -> None:
    made = learner(replace(TINY, temporal=False), rows=8, batch=16)
    before = [p.clone() for p in made.pair.temporal.parameters()]
    assert made.round(0.0)["frames"] == 4
    assert all(torch.equal(a, b) for a, b in zip(before, made.pair.temporal.parameters(), strict=True))


def test_salient_regions_reward_the_spatial_agent_alone() -> None:
    torch.manual_seed(0)
    pair, (batch, place) = Pair(TINY), tubes(16)
    maps = torch.zeros(16, 4, 2, 4, 4)
    maps.flatten(3)[torch.arange(16), :, :, place] = 1.0
    options: dict[str, Any] = {"rows": 16, "rollout": 2, "teacher": 0.0, "few": 0.0, "representative": 0.0}
    made = PPOTrainer(
        pair,
        [RewardedSampler(sampler(batch), maps, pair.hierarchy(GRID))],
        PPOConfig(objectness=1.0, motion=0.5, **options),
    )
    made.begin()
    _, earned = made._collect(0)
    assert earned["objectness"] == earned["motion"] != 0
    assert abs(earned["spatial"] - earned["shared"] - 1.5 * earned["objectness"]) < 1e-5
    assert earned["temporal"] == earned["shared"]


def test_the_teacher_tells_first_order_effects() -> None:
    """Of a linear model they are exact: compared with asking it about every single change."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 2))
    victim = TorchVictim(model, outputs="logits")
    batch, _ = tubes(3)
    y = victim(batch.x).argmax(1)
    made = EpisodeSampler(victim, batch.x, y, (0.0, 1.0), Task(GRID, 2, Untargeted(), 9), [["gaussian_noise@0.2"]])
    state = made.fresh(2)
    found = made.effects(state)
    assert found is not None
    for patch in (0, 17, 63):
        for entry in (1, 2):
            changed = state.assignment.clone()
            changed[:, patch] = entry
            margin = made.task.goal.margin(victim(render(state.bank, changed, GRID)), state.y)
            drop = (state.margin - margin) / state.margin0
            torch.testing.assert_close(found[:, entry, patch], drop, atol=1e-4, rtol=1e-3)
    assert (found[:, 0] == 0).all()  # nothing is held, so nothing can be restored
    assert sampler(batch).effects(sampler(batch).fresh(2)) is None  # a function has no gradients


def test_a_judged_choice_is_what_the_loss_sees() -> None:
    told = ChosenDistribution(torch.tensor([-1.0, -2.0]), torch.tensor([0.3, 0.4]))
    assert told.log_prob(torch.zeros(2, 3)).tolist() == [-1, -2]
    assert told.entropy().tolist() == torch.tensor([0.3, 0.4]).tolist()
