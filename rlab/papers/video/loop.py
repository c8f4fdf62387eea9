"""The training of the two agents, measured in minutes: their prior learns first, then rounds with validations between them.

A training that was stopped resumes from the last validation, or from the middle of the prior; the best pair is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlab.papers.video.file import save_pair
from rlab.papers.video.pair import Pair
from rlab.priors.file import save_prior
from rlab.storage.config import write_config
from rlab.storage.resume import Resume
from rlab.training.config import TrainingOptions
from rlab.training.episodes import EpisodeSampler
from rlab.training.metrics import MetricLogger
from rlab.training.trainer import LOG, PRIOR, Figures, Tell, Validation, make_card, train_for

AGENT = "agent.safetensors"
_STATE = "state"  # the step of the ledger that holds the state of the training


class Trainer(Protocol):
    """What learns: rounds of acting and updating, and all of its state to go on from."""

    def begin(self) -> None: ...
    def round(self, progress: float) -> Figures: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, saved: dict[str, Any]) -> None: ...


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
