"""One training: of a direction prior, or of the pair of agents, whose prior learns first; all measured in minutes.

A training that was stopped goes on from the last validation, in the middle of the prior too; the best pair is kept.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from rlab import __version__
from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.policies.agent_file import save_pair
from rlab.policies.base import Policy
from rlab.policies.video import Pair
from rlab.priors.file import save_prior
from rlab.priors.trained import DirectionPrior
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.fingerprint import data_fingerprint, files_of, model_fingerprint
from rlab.runs.options import make_attack
from rlab.stats import median_of
from rlab.storage.config import write_config
from rlab.storage.digest import digest
from rlab.storage.resume import Resume, open_run
from rlab.training.config import TrainingOptions
from rlab.training.episodes import EpisodeSampler, teachable
from rlab.training.metrics import MetricLogger
from rlab.training.prior import train_prior
from rlab.training.ranks import ALONE, Ranks
from rlab.victims.base import Victim

AGENT, PRIOR, LOG = "agent.safetensors", "prior.safetensors", "log.jsonl"
_STATE = "state"  # the step of the ledger that holds where the training stands
Figures = dict[str, float]
Tell = Callable[[Figures], None]


class Trainer(Protocol):
    """What learns: rounds of acting and updating, and all of its state to go on from."""

    def begin(self) -> None: ...
    def round(self, progress: float) -> Figures: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, saved: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Validation:
    """The real attack on held-out samples, for the first patch size: means over the victims."""

    victims: Sequence[Victim]
    batch: Batch
    patch: int | tuple[int, ...]
    policy: Policy
    score: Callable[[Figures, TrainingOptions], float] = lambda figures, options: 0.0  # the higher the better

    def run(self, options: TrainingOptions) -> Figures:
        attack = make_attack(
            self.batch,
            palette=options.validation_palette,
            patch=self.patch,
            budget=options.budget,
            policy=self.policy,
            l2_penalty=options.validation_l2_penalty,
            patience=2,
            chunk=len(self.batch) if options.device != "cpu" else None,
            seed=options.seed,
        )
        samples = self.batch[: options.validation_samples]
        each = [_figures(run_attack(attack, victim, samples)) for victim in self.victims]
        return {key: sum(figures[key] for figures in each) / len(each) for key in each[0]}


def _figures(result: AttackResult) -> Figures:
    summary = result.summary()
    figures = {key: summary[key] for key in ("success", "median_queries", "median_search", "median_l2")}
    return figures | {"median_map255": median_of(result.final["map255"], result.succeeded)}


@dataclass
class Training:
    """`network` is what `trainer` trains and what is saved; `resume` holds where it stands."""

    options: TrainingOptions
    network: Pair
    trainer: Trainer
    validation: Validation
    resume: Resume
    tell: Tell
    prior_done: float = 0.0  # share of the prior's training
    seconds: float = 0.0  # of the rest
    best: float = -math.inf

    def run(self, samplers: Sequence[EpisodeSampler]) -> Path:
        """Writes the best agent on validation; the prior learns from `samplers`."""
        logger = MetricLogger(self.resume.folder / LOG, self.options.tensorboard)
        self.resume.create()
        write_config(self.resume.folder, self.options.plain())
        if (saved := self.resume.recall(_STATE, "")) is not None:
            self.trainer.load_state_dict(saved["trainer"])
            self.prior_done, self.seconds, self.best = saved["prior_done"], saved["seconds"], saved["best"]
        if self.prior_done < 1 and self.network.compass is not None and self.options.prior_minutes:
            self._train_prior(samplers, logger)
        self.trainer.begin()
        self._rounds(logger)
        return self.resume.folder / AGENT

    def _train_prior(self, samplers: Sequence[EpisodeSampler], logger: MetricLogger) -> None:
        """With a record every validation interval; what it comes to stays in OUT/prior.safetensors."""
        prior, minutes = self.network.compass, self.options.prior_minutes
        assert prior is not None

        def note(done: float, loss: float) -> None:
            self.prior_done = done
            self._record()
            self._tell(logger, {"prior": done, "prior_loss": loss}, done * minutes * 60)

        train_for(minutes, prior, samplers, self.options, self.prior_done, note)
        self.prior_done = 1.0
        save_prior(prior, self.resume.folder / PRIOR, self._card({}))
        self._record()

    def _rounds(self, logger: MetricLogger) -> None:
        options, idle, rounds = self.options, 0, 0
        began, validated = time.monotonic() - self.seconds, time.monotonic()
        while True:
            progress = min(1.0, (time.monotonic() - began) / (options.minutes * 60))
            figures = self.trainer.round(progress)
            rounds += 1
            if progress < 1 and time.monotonic() - validated <= options.validation_interval * 60:
                continue
            self.network.eval()
            figures |= self.validation.run(options) | {"rounds": rounds, "progress": progress}
            self.network.train()
            score = self.validation.score(figures, options)
            idle = 0 if score > self.best else idle + 1
            if score > self.best:
                self.best = score
                save_pair(self.network, self.resume.folder / AGENT, self._card(figures))
            self.seconds = time.monotonic() - began
            self._record()
            self._tell(logger, figures, self.seconds)
            validated = time.monotonic()
            if progress >= 1 or (options.patience is not None and idle >= options.patience):
                return

    def _tell(self, logger: MetricLogger, figures: Figures, seconds: float) -> None:
        logger.note(figures, seconds)
        self.tell(figures)

    def _card(self, figures: Figures) -> dict[str, Any]:
        return {"l2_penalty": self.options.validation_l2_penalty} | make_card(self.options, figures)

    def _record(self) -> None:
        state = {"prior_done": self.prior_done, "seconds": self.seconds, "best": self.best}
        self.resume.record(_STATE, "", state | {"trainer": self.trainer.state_dict()})


def train_for(
    minutes: float,
    prior: DirectionPrior,
    samplers: Sequence[EpisodeSampler],
    options: TrainingOptions,
    done: float,
    note: Callable[[float, float], None],
    ranks: Ranks = ALONE,
) -> None:
    """Trains a prior for what is left of its minutes; `note` hears what share is done, and the loss, every validation interval."""
    began, noted = time.monotonic() - done * minutes * 60, time.monotonic()

    def told(share: float, loss: Tensor) -> None:
        nonlocal noted
        if time.monotonic() - noted > options.validation_interval * 60:
            noted = time.monotonic()
            note(share, float(loss))

    train_prior(prior, samplers, options.prior, lambda: (time.monotonic() - began) / (minutes * 60), told, ranks)


def make_card(options: TrainingOptions, figures: Figures) -> dict[str, Any]:
    """What a file says of itself: the models and data it saw, the whole configuration, and how it did on validation."""
    config = options.plain()
    models = [model["name"] for model in config["models"]]
    about = {"rlab": __version__, "trained on": config["data"]["path"], "models": models}
    return about | {"config": config, "validation": figures}


def open_folder(
    folder: Path, options: TrainingOptions, victims: Sequence[Victim], batch: Batch
) -> AbstractContextManager[Resume]:
    """A training's folder: the same options, models and data go on, others are refused."""
    models, plain = digest(*(model_fingerprint("", victim) for victim in victims)), options.plain()
    asked = {"command": "train", **plain, "the models": models, "the data": data_fingerprint(batch)}
    return open_run(folder, asked | files_of(plain))


def samplers_for(
    options: TrainingOptions, victims: Sequence[Victim], batch: Batch, grids: Sequence[PatchGrid]
) -> list[tuple[EpisodeSampler, Tensor]]:
    """One for every victim and grid, and the rows (b,) of the batch it draws from: those that the victim gets right."""
    tasks = [Task(g, options.entries, Untargeted(), options.horizon, success=options.success) for g in grids]
    samplers = []
    for number, victim in enumerate(victims):
        x, y, rng = batch.x.to(victim.device), batch.y.to(victim.device), random.Random(options.seed * 1000 + number)
        rows = teachable(victim, x, y, tasks[0])
        shared = (options.palettes, options.l2_penalties, rng, options.group, batch.rate, batch.unit)
        for task in tasks:
            samplers.append((EpisodeSampler(victim, x[rows], y[rows], batch.bounds, task, *shared), rows))
    return samplers
