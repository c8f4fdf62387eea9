"""Courses, the learner, and that it learns where a planted victim is weak."""

import random
from typing import Any

import pytest
import torch

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.errors import InputError
from rlab.policies.qmap import QMap, QMapConfig
from rlab.training.dqn import Learner, LearnerConfig, as_weights, legal
from rlab.training.episodes import EpisodeSampler, draw_palette, teachable
from rlab.victims.callables import CallableVictim
from tests.training.seen import features
from tests.helpers import PALETTE, exact_victim, labelled_by, make_batch, make_grid


def task(rank: int, budget: int = 8) -> Task:
    return Task(make_grid(rank), len(PALETTE), Untargeted(), budget)


def test_drawn_palettes_have_the_asked_size_and_severities_in_range() -> None:
    chance = random.Random(0)
    seen = set()
    for _ in range(20):
        palette = draw_palette(["gaussian_noise@0.1..0.4", "illuminate@0.2"], 5, 2, 3, chance)
        assert len(palette) == 5
        for entry in palette.entries:
            if entry.filter.name == "gaussian_noise":
                assert 0.1 <= entry.severity <= 0.4
                seen.add(entry.severity)
            else:
                assert entry.severity == 0.2
    assert len(seen) > 10


def test_victims_nothing_can_be_learned_from_are_refused() -> None:
    batch = make_batch(2, 8)

    def answer(function: object) -> CallableVictim:
        return CallableVictim(function, outputs="logits")  # type: ignore[arg-type]

    chance = random.Random(0)
    cases = {
        "answers every input alike": lambda x: [[1.0, 0.0, 0.0]] * len(x),
        "differently each time": lambda x: [[chance.random(), chance.random(), 0.0] for _ in x],
        "answers NaN": lambda x: [[float("nan")] * 3] * len(x),
    }
    for sentence, function in cases.items():
        with pytest.raises(InputError, match=sentence):
            teachable(answer(function), batch.x, batch.y, task(2))
    victim = exact_victim(2)
    wrong = labelled_by(victim, batch, wrong=tuple(range(len(batch))))
    with pytest.raises(InputError, match="none of the 8 training inputs right"):
        teachable(victim, wrong.x, wrong.y, task(2))


def test_a_set_becomes_weights_that_sum_to_one() -> None:
    shape = torch.Size([2, 2, 3, 4])
    weights = as_weights(
        torch.tensor([0, 1]), torch.tensor([[2, -1], [0, 1]]), torch.tensor([[3, -1], [2, 0]]), shape
    ).view(2, 2, 3, 4)
    assert weights[0, 0, 2, 3] == 1
    assert weights[1, 1, 0, 2] == weights[1, 1, 1, 0] == 0.5
    assert weights.flatten(1).sum(1).tolist() == [1, 1]


def test_legal_reads_the_assignment_off_the_features() -> None:
    seen = features(1, n=1, entries=2, side=3)
    assignment = torch.tensor([0, 2, 1])
    seen["entry_maps"][0, :, 0] = torch.stack([(assignment == f).float() for f in (1, 2)])
    seen["patch_maps"][0, 0] = (assignment == 0).float()
    assert legal(seen)[0].tolist() == [[False, True, True], [True, True, False], [True, False, True]]


def brightest(side: int) -> CallableVictim:
    """Right while the brightest patch stays bright: the weak spot is in another place in every input, and to be seen."""
    grid = PatchGrid((side,), (1,))

    def scores(x: Any) -> Any:
        top = grid.reduce(torch.as_tensor(x)[:, 0]).amax(1)
        return torch.stack([8 * (top - 0.6), torch.zeros_like(top)], 1).numpy()

    return CallableVictim(scores, outputs="logits")


def test_the_learner_finds_the_weak_spot_of_a_planted_victim() -> None:
    torch.manual_seed(0)
    side, victim = 12, brightest(12)
    x = 0.4 * torch.rand(64, 1, side)
    x[torch.arange(64), 0, torch.randint(side, (64,))] = 0.95
    planted = Task(PatchGrid((side,), (1,)), 1, Untargeted(), 12)
    sampler = EpisodeSampler(victim, x, torch.zeros(64, dtype=torch.int64), (0.0, 1.0), planted, [["dead_pixel@1.0"]])
    sampler.chance.seed(0)
    network = QMap(QMapConfig(1, 1, width=16, blocks=1, shares=(0.3,)))
    learner = Learner(
        network, [sampler], LearnerConfig(rows=32, rollout=4, updates=12, batch=64, replay=2000, n_steps=1)
    )
    learner.begin()
    for i in range(25):
        figures = learner.round(i / 25)
    assert torch.isfinite(torch.tensor(figures["loss"]))
    state = learner._remember(sampler, sampler.fresh(40))
    q = network({key: value.float() for key, value in learner._see(sampler, state).items()})
    found = q[:, 0, 1].argmax(1) == state.x[:, 0].argmax(1)
    assert found.float().mean() > 0.8  # by chance it would be one in twelve


def test_a_drawn_palette_knows_the_rate_and_unit_of_the_signals() -> None:
    chance = random.Random(0)
    hum = ["powerline_hum60@0.1"]
    assert len(draw_palette(hum, 1, 1, 1, chance, rate=360.0)) == 1
    with pytest.raises(InputError, match="120"):  # 60 Hz cannot be in a signal of 100 samples a second
        draw_palette(hum, 1, 1, 1, chance, rate=100.0)
    assert draw_palette(["muscle_noise@0.1mV"], 1, 1, 1, chance, rate=360.0, unit="mV").names
