"""The attack as a Gymnasium environment, for other libraries.

An action is one change: entry * patches + patch, where entry 0 restores the patch. The observation holds the current
assignment, the effect of each change when it was last tried, the number of tries, the margin and the distance, in units that
do not depend on model, palette or size.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from rlab.core.env import Accept, State, StepOutcome, propose
from rlab.core.feedback import Feedback
from rlab.training.episodes import EpisodeSampler

SUCCESS = 1.0  # reward for reaching the goal
Observation = dict[str, "np.ndarray[Any, Any]"]


def observe(sampler: EpisodeSampler, state: State, feedback: Feedback) -> dict[str, Tensor]:
    """`assignment`, `feedback`, `tried` (n, f + 1, *grid) and `scalars` (n, 4)."""
    grid, entries = sampler.task.grid.shape, torch.arange(state.bank.shape[1], device=state.x.device)
    unit = state.margin0[:, None, None]
    maps = {
        "assignment": (state.assignment[:, None] == entries[:, None]).to(feedback.drop.dtype),
        "feedback": (feedback.drop / unit).clamp(-3, 3),
        "tried": feedback.tried,
    }
    spent = state.step / sampler.task.budget
    scalars = [state.margin / state.margin0, (state.margin0 + 1).log(), state.distance, spent]
    return {key: value.unflatten(2, grid) for key, value in maps.items()} | {"scalars": torch.stack(scalars, 1)}


def reward_of(before: State, after: State, outcome: StepOutcome) -> Tensor:
    """(n,): the drop in margin, down to zero, less the price of distance, in units of the initial margin; and SUCCESS for a flip.

    A change that is not accepted earns nothing.
    """
    gained = (before.margin - after.margin.clamp(min=0)) / before.margin0
    gained = gained - before.l2_penalty * (after.distance - before.distance)
    return torch.where(outcome.accepted, gained, 0.0) + SUCCESS * outcome.done


def change(sampler: EpisodeSampler, state: State, action: Tensor) -> tuple[State, StepOutcome]:
    """One change in each row, actions (n,), and its query."""
    patches = len(sampler.task.grid)
    assignment = state.assignment.scatter(1, (action % patches)[:, None], (action // patches)[:, None])
    return sampler.env.step(state, propose(assignment, Accept.IF_BETTER))


class GymnasiumEnv(gymnasium.Env):
    """One episode at a time. Reaching the goal terminates it; spending the budget truncates it."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (as gymnasium declares it)

    def __init__(self, sampler: EpisodeSampler, render_mode: str | None = None) -> None:
        self.sampler = sampler
        self.render_mode = render_mode
        self._begin()
        boxes: dict[str, gymnasium.Space[Any]] = {
            key: gymnasium.spaces.Box(-np.inf, np.inf, value.shape, np.float32) for key, value in self._seen().items()
        }
        self.observation_space = gymnasium.spaces.Dict(boxes)
        self.action_space = gymnasium.spaces.Discrete((sampler.task.entries + 1) * len(sampler.task.grid))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.sampler.rng.seed(seed)
        self._begin()
        return self._seen(), self._facts()

    def _begin(self) -> None:
        self.state = self.sampler.fresh(1)
        self.feedback = Feedback.begin(self.state)

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        actions = torch.tensor([int(action)], device=self.sampler.x.device)
        before = self.state
        self.state, outcome = change(self.sampler, before, actions)
        self.feedback = self.feedback.after(self.state)
        reward = float(reward_of(before, self.state, outcome)[0])
        over = bool(self.state.step[0] >= self.sampler.task.budget)
        return self._seen(), reward, bool(outcome.done[0]), over, self._facts()

    def render(self) -> np.ndarray[Any, Any] | None:
        """The original and the current input, (height, width, 3) uint8, if the mode is rgb_array."""
        if self.render_mode is None:
            return None
        from rlab.results.pictures import render_episode

        x0, x = (values[0].float().cpu().numpy() for values in (self.state.x0, self.state.x))
        return render_episode(x0, x, self.sampler.bounds)

    def _seen(self) -> Observation:
        return {
            key: value[0].float().cpu().numpy()
            for key, value in observe(self.sampler, self.state, self.feedback).items()
        }

    def _facts(self) -> dict[str, Any]:
        return {"margin": float(self.state.margin[0]), "l2": float(self.state.distance[0])}
