"""The attack as an environment for other libraries: a batched TorchRL environment and a Gymnasium one.

In both, an action is one change: entry * patches + patch, where entry 0 restores the patch. The observation holds the current
assignment, the effect of each change when it was last tried, the number of tries, the margin and the distance, in units that
do not depend on model, palette or size.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from rlab.core.env import Accept, State, StepOutcome, propose
from rlab.training.episodes import EpisodeSampler

Observation = dict[str, "np.ndarray[Any, Any]"]


def observe(sampler: EpisodeSampler, state: State) -> dict[str, Tensor]:
    """`assignment`, `feedback`, `tried` (n, f + 1, *grid) and `scalars` (n, 4)."""
    grid, entries = sampler.task.grid.shape, torch.arange(state.bank.shape[1], device=state.x.device)
    unit = state.margin0[:, None, None]
    maps = {
        "assignment": (state.assignment[:, None] == entries[:, None]).to(state.feedback.dtype),
        "feedback": (state.feedback / unit).clamp(-3, 3),
        "tried": state.tried.to(state.feedback.dtype),
    }
    spent = state.step / sampler.task.budget
    scalars = [state.margin / state.margin0, (state.margin0 + 1).log(), state.distance, spent]
    return {key: value.unflatten(2, grid) for key, value in maps.items()} | {"scalars": torch.stack(scalars, 1)}


def change(sampler: EpisodeSampler, state: State, action: Tensor) -> tuple[State, StepOutcome]:
    """One change in each row, actions (n,), and its query."""
    patches = len(sampler.task.grid)
    assignment = state.assignment.scatter(1, (action % patches)[:, None], (action // patches)[:, None])
    return sampler.env.step(state, propose(assignment, Accept.IF_BETTER))


class TorchRLEnv(EnvBase):
    """`rows` episodes of a sampler side by side."""

    def __init__(self, sampler: EpisodeSampler, rows: int) -> None:
        super().__init__(device=sampler.x.device, batch_size=torch.Size([rows]))
        self.sampler = sampler
        self.state = sampler.fresh(rows)
        seen = observe(sampler, self.state)
        shapes = {key: Unbounded(value.shape, device=self.device) for key, value in seen.items()}
        self.observation_spec = Composite(**shapes, batch_size=self.batch_size)
        actions = (sampler.task.entries + 1) * len(sampler.task.grid)
        self.action_spec = Categorical(actions, shape=self.batch_size, device=self.device)
        self.reward_spec = Unbounded((rows, 1), device=self.device)
        flags = {key: Binary(1, (rows, 1), dtype=torch.bool, device=self.device) for key in _FLAGS}
        self.done_spec = Composite(**flags, batch_size=self.batch_size)

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDict:
        ended = None if tensordict is None else tensordict.get("_reset", None)
        every = torch.arange(len(self.state), device=self.device)
        rows = every if ended is None else every[ended.flatten()]
        if len(rows):
            self.state = self.state.put(rows, self.sampler.fresh(len(rows)))
        running = torch.zeros(*self.batch_size, 1, dtype=torch.bool, device=self.device)
        return self._result({key: running.clone() for key in _FLAGS})

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        self.state, outcome = change(self.sampler, self.state, tensordict["action"])
        terminated, truncated = outcome.done[:, None], (self.state.step >= self.sampler.task.budget)[:, None]
        flags = {"terminated": terminated, "truncated": truncated, "done": terminated | truncated}
        return self._result(flags | {"reward": outcome.reward[:, None]})

    def _result(self, more: dict[str, Tensor]) -> TensorDict:
        return TensorDict(observe(self.sampler, self.state) | more, batch_size=self.batch_size, device=self.device)

    def _set_seed(self, seed: int | None) -> None:
        self.sampler.rng.seed(seed)


_FLAGS = ("done", "terminated", "truncated")


class GymnasiumEnv(gymnasium.Env):
    """One episode at a time. Reaching the goal terminates it; spending the budget truncates it."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012  (as gymnasium declares it)

    def __init__(self, sampler: EpisodeSampler, render_mode: str | None = None) -> None:
        self.sampler = sampler
        self.render_mode = render_mode
        self.state = sampler.fresh(1)
        boxes: dict[str, gymnasium.Space[Any]] = {key: _box(value) for key, value in self._seen().items()}
        self.observation_space = gymnasium.spaces.Dict(boxes)
        self.action_space = gymnasium.spaces.Discrete((sampler.task.entries + 1) * len(sampler.task.grid))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.sampler.rng.seed(seed)
        self.state = self.sampler.fresh(1)
        return self._seen(), self._facts()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        actions = torch.tensor([int(action)], device=self.sampler.x.device)
        self.state, outcome = change(self.sampler, self.state, actions)
        over = bool(self.state.step[0] >= self.sampler.task.budget)
        return self._seen(), float(outcome.reward[0]), bool(outcome.done[0]), over, self._facts()

    def render(self) -> np.ndarray[Any, Any] | None:
        """The original and the current input, (height, width, 3) uint8, if the mode is rgb_array."""
        if self.render_mode is None:
            return None
        from rlab.results.plots.pixels import render_episode

        x0, x = (values[0].float().cpu().numpy() for values in (self.state.x0, self.state.x))
        return render_episode(x0, x, self.sampler.bounds)

    def _seen(self) -> Observation:
        return {key: value[0].float().cpu().numpy() for key, value in observe(self.sampler, self.state).items()}

    def _facts(self) -> dict[str, Any]:
        return {"margin": float(self.state.margin[0]), "l2": float(self.state.distance[0])}


def _box(value: np.ndarray[Any, Any]) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-np.inf, np.inf, value.shape, np.float32)
