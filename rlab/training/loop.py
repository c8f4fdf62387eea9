"""The loop that trains priors and agents.

A training is cut into as many pieces as it has validations. Each piece starts from the weights, new episodes and a seed of its
own, so a training that was killed repeats one piece at most and, if it counts updates, ends with the same weights as one that
was not.
"""

from __future__ import annotations

import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from rlab.priors.file import write_weights
from rlab.storage.config import write_config
from rlab.storage.resume import Resume
from rlab.training.episodes import EpisodeSampler
from rlab.training.trainer import LOG, Figures, MetricLogger, Tell, TrainingOptions, first_update, make_card

_STATE = "state"  # the step that holds where the training stands


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
        loss.backward(inputs=list(self.network.parameters()))  # a victim's own weights need no gradient
        nn.utils.clip_grad_norm_(self.network.parameters(), longest)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).state_dict() for name in self.saved}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        for name in self.saved:
            getattr(self, name).load_state_dict(saved[name])


def reseed(samplers: Sequence[EpisodeSampler], seed: int) -> None:
    for number, sampler in enumerate(samplers):
        sampler.rng = random.Random(f"{seed}/{number}")


@dataclass
class TrainingLoop:
    """`kind` and `shape` describe the network in its file `name`; `resume` holds where the training stands."""

    name: str
    kind: str
    shape: BaseModel
    options: TrainingOptions
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
        """Write the file, or continue from the last piece that was finished."""
        folder, saved = self.resume.folder, self.resume.recall(_STATE, "")
        logger = MetricLogger(folder / LOG, (saved or {}).get("log", ()), self.options.tensorboard)
        self.resume.create()
        write_config(folder, self.options.plain())
        if saved is not None:
            self.learner.load_state_dict(saved["learner"])
            self.piece, self.updates = saved["piece"], saved["updates"]
            self.seconds, self.best = saved["seconds"], saved["best"]
        while self.piece < self.options.validations and (not self.piece or self._progress() < 1):
            figures, began = self._learn_a_piece(logger), time.monotonic()
            self.learner.network.eval()
            figures |= self.validate()
            self.validating = time.monotonic() - began
            if self.options.updates is None:  # the minutes include validations
                self.seconds += self.validating
            distance = figures["median_l2"]  # a score of success first, then of a short distance
            score = figures["success"] - (0.01 * distance if math.isfinite(distance) else 1.0)
            if score > self.best or self.options.keep == "last" or not (folder / self.name).exists():
                card = make_card(self.options, figures)
                weights, shape = self.learner.network.state_dict(), self.shape.model_dump()
                write_weights(folder / self.name, self.kind, weights, shape, card)
            self.best = max(self.best, score)
            self.piece += 1
            where = {"piece": self.piece, "updates": self.updates, "seconds": self.seconds, "best": self.best}
            state = where | {"log": [*logger.lines, figures], "learner": self.learner.state_dict()}
            self.resume.record(_STATE, "", state)
            logger.note(figures, self.seconds)
            self.tell(figures)
        return folder / self.name

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
