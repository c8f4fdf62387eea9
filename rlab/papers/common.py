"""What the agents of papers share: their options, their files, the loop that trains them, and the losses.

A training is cut into as many pieces as it has validations. Each piece starts from the weights, new episodes and a seed of its
own, so a training that was killed repeats one piece at most and, if it counts updates, writes the same file as one that was not.
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rlab.errors import OptionError
from rlab.policies.auto import shipped_path
from rlab.policies.base import Policy
from rlab.priors.file import MOST_WIDTH, write_weights
from rlab.storage.config import write_config
from rlab.storage.resume import Resume
from rlab.training.episodes import EpisodeSampler
from rlab.training.trainer import LOG, Figures, MetricLogger, Tell, TrainingOptions, first_update, make_card

AGENT = "agent.safetensors"
SHIPPED = {"two_agents": "video"}  # agents that beat random changes on a model they have not seen
_STATE = "state"  # the step that holds where the training stands


class PaperOptions(TrainingOptions):
    """The options of every paper's training; `updates` in place of `minutes` makes it repeatable to the last bit."""

    updates: int | None = Field(None, ge=1)
    validations: int = Field(10, ge=1)  # spread evenly; each ends a piece that a stopped training repeats
    keep: Literal["best", "last"] = "best"  # the weights with the best validation, or the last ones
    horizon: int = Field(20, ge=2)  # actions of the longest training episode
    rows: int = Field(64, ge=1)  # episodes that step together on each model
    learning_rate: float = Field(1e-3, gt=0)
    gamma: float = Field(0.9, ge=0, le=1)


class NetworkShape(BaseModel):
    """The arguments of a network, as the header of its file holds them; subclasses add theirs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    width: int = Field(32, ge=1, le=MOST_WIDTH)


class Learner(ABC):
    """What learns: it acts in episodes and updates a network; `saved` names all it needs to go on."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    saved: ClassVar[tuple[str, ...]] = ("network", "optimizer")

    @abstractmethod
    def begin(self, seed: int) -> None:
        """New episodes at the start of a piece; torch's generators are seeded already."""

    @abstractmethod
    def update(self, progress: float) -> Figures:
        """One round of acting and learning at this share of the training; its figures, finite or NaN."""

    def descend(self, loss: Tensor, longest: float) -> None:
        """One step of the optimizer, along a gradient of at most this length."""
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), longest)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in self.saved}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for name in self.saved:
            getattr(self, name).load_state_dict(saved[name])


# Files.


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


# Training.


def reseed(samplers: Sequence[EpisodeSampler], seed: int) -> None:
    for number, sampler in enumerate(samplers):
        sampler.rng = random.Random(f"{seed}/{number}")


@dataclass
class Training:
    """`kind` and `shape` describe the network in its file; `resume` holds where the training stands."""

    kind: str
    shape: NetworkShape
    options: PaperOptions
    learner: Learner
    validate: Callable[[], Figures]
    resume: Resume
    tell: Tell
    piece: int = 0
    updates: int = 0
    seconds: float = 0.0
    best: float = -math.inf
    validating: float = 0.0  # seconds of the last validation

    def run(self) -> Path:
        """Write the agent, or continue from the last piece that was finished."""
        folder = self.resume.folder
        self.resume.create()
        write_config(folder, self.options.plain())
        if (saved := self.resume.recall(_STATE, "")) is not None:
            self.learner.load_state_dict(saved["learner"])
            self.piece, self.updates = saved["piece"], saved["updates"]
            self.seconds, self.best = saved["seconds"], saved["best"]
        logger = MetricLogger(folder / LOG, (saved or {}).get("log", ()), self.options.tensorboard)
        while self.piece < self.options.validations and (not self.piece or self._progress() < 1):
            figures, began = self._learn_a_piece(logger), time.monotonic()
            self.learner.network.eval()
            figures |= self.validate()
            self.validating = time.monotonic() - began
            if self.options.updates is None:  # the minutes include validations
                self.seconds += self.validating
            distance = figures["median_l2"]  # a score of success first, then of a short distance
            score = figures["success"] - (0.01 * distance if math.isfinite(distance) else 1.0)
            if score > self.best or self.options.keep == "last" or not (folder / AGENT).exists():
                card = make_card(self.options, figures)
                weights, shape = self.learner.network.state_dict(), self.shape.model_dump()
                write_weights(folder / AGENT, self.kind, weights, shape, card)
            self.best = max(self.best, score)
            self.piece += 1
            where = {"piece": self.piece, "updates": self.updates, "seconds": self.seconds, "best": self.best}
            state = where | {"log": [*logger.lines, figures], "learner": self.learner.state_dict()}
            self.resume.record(_STATE, "", state)
            logger.note(figures, self.seconds)
            self.tell(figures)
        return folder / AGENT

    def _learn_a_piece(self, logger: MetricLogger) -> Figures:
        """Until the next validation is due -> the mean of each figure."""
        seed = self.options.seed * 10_007 + self.piece
        torch.manual_seed(seed)
        self.learner.network.train()
        self.learner.begin(seed)
        due, began = (self.piece + 1) / self.options.validations, time.monotonic() - self.seconds
        if self.options.updates is None:  # so that the next validation ends in time
            due -= self.validating / (60 * self.options.minutes)
        told: list[Figures] = []
        while not told or self._progress() < due - 1e-9:
            before = self.seconds
            told.append(self.learner.update(self._progress()))
            self.updates, self.seconds = self.updates + 1, time.monotonic() - began
            if self.updates == 1 and self.options.updates is None:
                logger.note(line := first_update(self.seconds - before, self.options), self.seconds)
                self.tell(line)
        means = {name: _mean([figures[name] for figures in told if name in figures]) for name in told[-1]}
        return means | {"updates": float(self.updates), "minutes": self.seconds / 60, "progress": self._progress()}

    def _progress(self) -> float:
        """The share of the training that is over; a validation or an update may run over the time."""
        if self.options.updates is not None:
            return min(1.0, self.updates / self.options.updates)
        return min(1.0, self.seconds / (60 * self.options.minutes))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


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
