"""What the agents of papers share: their options, the policies of their files, and the losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rlab.errors import OptionError
from rlab.policies.auto import shipped_path
from rlab.policies.base import Policy
from rlab.priors.file import MOST_WIDTH
from rlab.training.trainer import TrainingOptions

SHIPPED = {"two_agents": "video"}  # agents that beat random changes on a model they have not seen
_STATE = "state"  # the step that holds where the training stands


class PaperOptions(TrainingOptions):
    """The options of every paper's training."""

    horizon: int = Field(20, ge=2)  # actions of the longest training episode
    rows: int = Field(64, ge=1)  # episodes that step together on each model
    learning_rate: float = Field(1e-3, gt=0)
    gamma: float = Field(0.9, ge=0, le=1)


class NetworkShape(BaseModel):
    """The arguments of a network, as the header of its file holds them; subclasses add theirs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    width: int = Field(32, ge=1, le=MOST_WIDTH)


def named_policy(kind: str, load: Callable[..., Policy[Any]], agent: str | None = None, **options: Any) -> Policy[Any]:
    """The policy `kind(agent=FILE, ...)` of the command line; without a file, the agent that ships."""
    if agent is None and kind in SHIPPED:
        with shipped_path(SHIPPED[kind]) as path:
            return load(path, **options)
    if not isinstance(agent, str):
        raise OptionError(
            f"the policy {kind!r} needs the file of a trained agent, {kind}(agent='agent.safetensors'): "
            f"train one with `rlab train FILE.yaml --out OUT`, where the file has the line 'kind: {kind}'"
        )
    return load(Path(agent), **options)


# Losses: pure functions of tensors.


def double_q_target(reward: Tensor, over: Tensor, next_value: Tensor, gamma: float) -> Tensor:
    """(n,): what a step was worth; `next_value` is the target network's value of the online network's next choice
    (https://arxiv.org/abs/1509.06461). `over` (n,) bool ends an episode."""
    return reward + gamma * torch.where(over, 0.0, next_value)


def generalized_advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, over: Tensor, gamma: float, smoothing: float
) -> Tensor:
    """(steps, n) each -> advantages (steps, n) (https://arxiv.org/abs/1506.02438). After the step where `over`, no reward counts;
    an episode that was cut short is over too, with its `next_value` in the reward if it should count."""
    delta = reward + gamma * torch.where(over, 0.0, next_value) - value
    advantages, later = [], torch.zeros_like(delta[0])
    for step in range(len(delta) - 1, -1, -1):
        later = delta[step] + gamma * smoothing * torch.where(over[step], 0.0, later)
        advantages.append(later)
    return torch.stack(advantages[::-1])


def clipped_loss(log_prob: Tensor, before: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's surrogate, to be minimised (https://arxiv.org/abs/1707.06347)."""
    ratio = (log_prob - before).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def policy_gradient_loss(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """A2C's, to be minimised (https://arxiv.org/abs/1602.01783)."""
    return -(log_prob * advantage).mean()
