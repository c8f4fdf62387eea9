"""What every training of an agent has in common: its options, its two halves, checkpoints that resume, the best kept.

First a compass learns from the gradients of the training models, then the agent from rewards; both are measured in minutes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field

from rlab import __version__
from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.errors import InputError
from rlab.priors.trained import DirectionPrior
from rlab.training.episodes import EpisodeSampler
from rlab.training.metrics import MetricLogger
from rlab.training.prior import Lesson, PriorConfig, guide
from rlab.victims.options import ModelOptions, check, read_config
from rlab.victims.torch_module import TorchVictim

AGENT, GUIDED = "agent.safetensors", "guided.safetensors"
CHECKPOINT, LOG, CONFIG = "checkpoint.pt", "log.jsonl", "train.json"
Figures = dict[str, float]
Tell = Callable[[Figures], None]


class TrainingConfig(BaseModel):
    """What to train on and how long. Palettes hold specs whose severity may be a range, 'gaussian_noise@0.05..0.4'."""

    model_config = ConfigDict(extra="forbid")
    models: list[ModelOptions] = Field(min_length=1)
    data: DataOptions
    validation: DataOptions | None = None  # a share of the data where none is given
    palettes: list[list[str]] = Field(min_length=1)
    entries: int = Field(8, ge=1)  # palette entries an episode has
    patches: list[int | list[int]] = Field(min_length=1)
    l2_penalties: tuple[float, float] = (0.0, 0.0)
    success: float = Field(0.2, ge=0)  # what a flip is worth, as a share of the margin at the start
    horizon: int = Field(60, ge=2)  # steps of the longest training episode
    minutes: float = Field(5.0, gt=0)
    evaluate: float = Field(1.0, gt=0)  # minutes between validations
    patience: int | None = Field(None, ge=1)  # validations without a better one before it stops
    validation_palette: list[str] | None = None
    validation_l2_penalty: float = 0.0
    validation_samples: int = Field(200, ge=1)
    budget: int = Field(500, ge=3)
    heads: int = Field(2, ge=0)  # directions of the compass; 0 is no compass, for models without gradients
    compass_minutes: float = Field(2.0, ge=0)  # before the minutes above
    compass_width: int = Field(32, ge=1)
    compass_levels: int = Field(3, ge=1)
    shrink: int = Field(1, ge=1)
    guide: PriorConfig = PriorConfig()
    tensorboard: bool = False  # curves in OUT/tensorboard; needs the extra 'tensorboard'
    device: str = "cpu"
    seed: int = 0


AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


class Learner(Protocol):
    """What is trained: rounds of acting and learning, and all of its state for a checkpoint."""

    def begin(self) -> None: ...
    def round(self, progress: float) -> Figures: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, saved: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Training:
    """One training: `validate` gives the figures of the agent as it is, `score` says how good they are, `save` writes it."""

    config: TrainingConfig
    learner: Learner
    out: Path
    validate: Callable[[], Figures]
    score: Callable[[Figures], float]
    save: Callable[[Path, dict[str, Any]], None]
    tell: Tell

    def run(
        self, compass: DirectionPrior | None, samplers: Sequence[EpisodeSampler], bounds: tuple[float, float]
    ) -> Path:
        """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
        self.out.mkdir(parents=True, exist_ok=True)
        guided, spent, best = self._resume()
        (self.out / CONFIG).write_text(self.config.model_dump_json(indent=1))
        journal = MetricLogger(self.out / LOG, self.config.tensorboard)
        if guided < 1 and compass is not None and self.config.compass_minutes:
            self._guide(compass, samplers, bounds, guided, journal)
        self.learner.begin()
        self._rounds(spent, best, journal)
        return self.out / AGENT

    def _rounds(self, spent: float, best: float, journal: MetricLogger) -> None:
        config = self.config
        began, judged, idle, rounds = time.monotonic() - spent, time.monotonic(), 0, 0
        while True:
            share = min(1.0, (time.monotonic() - began) / (config.minutes * 60))
            figures = self.learner.round(share)
            rounds += 1
            over = share >= 1
            if not over and time.monotonic() - judged <= config.evaluate * 60:
                continue
            figures |= self.validate() | {"rounds": rounds, "progress": share}
            score = self.score(figures)
            idle = 0 if score > best else idle + 1
            if score > best:
                best = score
                self.save(self.out / AGENT, self._about(figures))
            self._checkpoint(1.0, time.monotonic() - began, best)
            journal.note(figures, time.monotonic() - began)
            self.tell(figures)
            judged = time.monotonic()
            if over or (config.patience is not None and idle >= config.patience):
                return

    def _guide(
        self,
        compass: DirectionPrior,
        samplers: Sequence[EpisodeSampler],
        bounds: tuple[float, float],
        guided: float,
        journal: MetricLogger,
    ) -> None:
        """Trains the compass, with a checkpoint every `evaluate` minutes; what it made stays in OUT/guided.safetensors."""
        samplers = [sampler for sampler in samplers if isinstance(sampler.victim, TorchVictim)]
        lessons = [Lesson(c.victim, c.x, c.y) for c in samplers if isinstance(c.victim, TorchVictim)]
        if not lessons:
            raise InputError(
                "a compass needs a training model that can be differentiated, a torch module: set heads to 0"
            )
        total = max(self.config.compass_minutes * 60, 1e-6)
        began = time.monotonic() - guided * total
        saved = time.monotonic()

        def heard(done: float, loss: torch.Tensor) -> None:
            nonlocal saved
            if time.monotonic() - saved > self.config.evaluate * 60:
                saved = time.monotonic()
                self._checkpoint(done, 0.0, -math.inf)
                figures = {"compass": done, "compass_loss": float(loss)}
                journal.note(figures, done * total)
                self.tell(figures)

        grids = [sampler.task.grid for sampler in samplers]
        goal = samplers[0].task.goal

        def passed() -> float:
            return (time.monotonic() - began) / total

        guide(compass, lessons, grids, bounds, goal, self.config.guide, passed, heard, samplers)
        self.save(self.out / GUIDED, self._about({}))
        self._checkpoint(1.0, 0.0, -math.inf)

    def _about(self, figures: Figures) -> dict[str, Any]:
        return {
            "rlab": __version__,
            "l2_penalty": self.config.validation_l2_penalty,
            "config": json.loads(self.config.model_dump_json()),
            "validation": figures,
        }

    def _checkpoint(self, guided: float, spent: float, best: float) -> None:
        beside = self.out / (CHECKPOINT + ".part")
        held = {"learner": self.learner.state_dict(), "guided": guided, "spent": spent, "best": best}
        torch.save(held, beside)
        beside.replace(self.out / CHECKPOINT)

    def _resume(self) -> tuple[float, float, float]:
        """How much of the compass is trained, seconds of the rest, and the best score so far."""
        if not (self.out / CHECKPOINT).exists():
            return 0.0, 0.0, -math.inf
        before = (self.out / CONFIG).read_text() if (self.out / CONFIG).exists() else ""
        if before and before != self.config.model_dump_json(indent=1):
            raise InputError(f"{self.out} holds a training of another configuration: name another folder with --out")
        saved = torch.load(self.out / CHECKPOINT, weights_only=True, map_location=self.config.device)
        self.learner.load_state_dict(saved["learner"])
        return float(saved["guided"]), float(saved["spent"]), float(saved["best"])


def read(kind: type[AnyConfig], path: Path, minutes: float | None = None, device: str | None = None) -> AnyConfig:
    """A training configuration from YAML or TOML; `device` also moves the models."""
    values = read_config(path)
    if minutes is not None:
        values["minutes"] = minutes
    if device is not None:
        values["device"] = device
        values["models"] = [model | {"device": device} for model in values.get("models", [])]
    return check(kind, values)


def divided(config: TrainingConfig, what: str = "samples") -> tuple[Batch, Batch]:
    """What to train on and what to validate with, a share of the same data where nothing else is named."""
    batch = config.data.load()
    if config.validation is not None:
        return batch, config.validation.load()
    if len(batch) < 2:
        raise InputError(f"expected at least two {what}, one to train on and one to validate with, got one")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(config.seed)).tolist()
    held = max(1, min(config.validation_samples, len(batch) // 5))
    return batch[order[held:]], batch[order[:held]]


def mean_figures(each: Sequence[Figures]) -> Figures:
    return {key: sum(one[key] for one in each) / len(each) for key in each[0]}
