"""The environment through other libraries' eyes."""

import math
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlab.core.env import Accept, Task
from rlab.core.goals import Untargeted
from rlab.errors import OptionError
from rlab.training.episodes import EpisodeSampler
from tests.core.test_env import Script, begin, propose
from tests.helpers import PALETTE, RANKS, exact_victim, labelled_by, make_batch, make_grid


def sampler(rank: int, budget: int = 6) -> EpisodeSampler:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 6))
    task = Task(make_grid(rank), len(PALETTE), Untargeted(), budget)
    return EpisodeSampler(victim, batch.x, batch.y, batch.bounds, task, [list(PALETTE)], rng=random.Random(0))


@pytest.mark.parametrize("rank", RANKS)
def test_gymnasium_accepts_the_environment(rank: int) -> None:
    from gymnasium.utils.env_checker import check_env

    from rlab.training.environments import GymnasiumEnv

    check_env(GymnasiumEnv(sampler(rank)), skip_render_check=True)


def test_a_spent_budget_truncates_and_the_same_seed_gives_the_same_episode() -> None:
    from rlab.training.environments import GymnasiumEnv

    env = GymnasiumEnv(sampler(2, budget=2))
    env.reset(seed=1)
    restore_nothing = 0  # patch 0 holds nothing, so the input stays as it is and the goal is out of reach
    ends = [env.step(restore_nothing)[2:4] for _ in range(2)]
    assert ends == [(False, False), (False, True)]  # truncated, not terminated
    env, rewards = GymnasiumEnv(sampler(2)), []
    for _ in range(2):
        env.reset(seed=3)
        rewards.append([env.step(action)[1] for action in (9, 17, 26)])
    assert rewards[0] == rewards[1]


@pytest.mark.parametrize("rank", RANKS)
def test_an_environment_shows_the_episode_as_pixels(rank: int) -> None:
    from rlab.training.environments import GymnasiumEnv

    env = GymnasiumEnv(sampler(rank), "rgb_array")
    env.reset(seed=1)
    before = env.render()
    env.state = replace(env.state, x=env.state.bank[:, 1])
    now = env.render()
    assert before is not None
    assert now is not None
    assert (before.dtype, before.shape[2], before.shape) == (np.uint8, 3, now.shape)
    assert (before != now).any()
    assert GymnasiumEnv(sampler(rank)).render() is None


def test_gymnasium_makes_an_environment_of_a_model_and_data() -> None:
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    import rlab.training.registered

    data = rlab.load("demo:digits", limit=6)
    given: dict[str, Any] = {"model": "demo:digits", "data": (data.x, data.y), "patch": 2}
    env = gymnasium.make(rlab.training.registered.NAME, budget=5, render_mode="rgb_array", **given)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    rewards = [env.step(env.action_space.sample())[1] for _ in range(3)]
    assert all(map(math.isfinite, rewards))
    assert isinstance(env.render(), np.ndarray)
    for wrong in ("budget", "budgte"):
        with pytest.raises(OptionError, match=f"'{wrong}'"):
            gymnasium.make("rlab/Attack-v0", **given | {wrong: 0})


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("import gymnasium, rlab; rlab.InputError; name = 'rlab/Attack-v0'", False),
        pytest.param(
            "import gymnasium, rlab.training.registered; name = 'rlab/Attack-v0'", True, marks=pytest.mark.slow
        ),
        pytest.param(
            "import gymnasium; name = 'rlab.training.registered:rlab/Attack-v0'", True, marks=pytest.mark.slow
        ),
    ],
)
def test_only_the_named_module_registers_the_environment(code: str, known: bool) -> None:
    make = "gymnasium.make(name, model='demo:digits', data='demo:digits', limit=6, patch=2, budget=5)"
    done = subprocess.run([sys.executable, "-c", f"{code}; {make}"], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is known, done.stderr
    assert known or "NamespaceNotFound" in done.stderr


def test_the_reward_counts_in_margins_at_the_start_less_the_price_of_distance() -> None:
    from rlab.training.environments import reward_of

    env, start = begin(Script([1.5, 1.9, 9.0], [-0.1, 1.0, 1.5]), [2.0, 2.0, 2.0], scale=10.0, l2_penalty=0.5)
    state, outcome = env.step(start, propose([[1, 0, 0, 0]] * 3))
    # L2 grows by 3 / 10 and costs half of that; the second drop is worth less than it costs, and stays all the same
    assert reward_of(start, state, outcome).tolist() == pytest.approx([0.25 - 0.15, 0.05 - 0.15, 0.0])
    assert outcome.accepted.tolist() == [True, True, False]
    after, outcome = env.step(state, propose([[0, 0, 0, 0]] * 3, Accept.ALWAYS))
    # the first comes back by 0.3, reaches the goal, worth 1, and earns its drop of 1.5 / 2 down to zero, not below
    assert reward_of(state, after, outcome).tolist() == pytest.approx([0.75 + 0.15 + 1.0, 0.45 + 0.15, 0.25])
