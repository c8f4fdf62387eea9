"""Training a direction prior from a configuration file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import ModelError
from rlab.policies.belief import BeliefPolicy
from rlab.priors.file import read_prior, save_prior
from rlab.priors.trained import DirectionPrior, TrainedPrior
from rlab.storage.config import write_config
from rlab.training import trainer
from rlab.training.prior import PriorConfig, train_prior
from rlab.training.ranks import ALONE, Ranks
from rlab.training.trainer import LOG, PRIOR, Tell, TrainingOptions
from rlab.victims.base import Victim

_GONE = {"horizon", "success", "patience", "l2_penalties", "validation_l2_penalty"}
_STATE = "state"  # the step of the ledger that holds where the training stands


class PriorOptions(TrainingOptions):
    """What to train a prior on and how long."""

    kind: Literal["prior"] = "prior"
    validation_interval: float = Field(1.0, gt=0)  # minutes between records of the training
    heads: int = Field(2, ge=1)  # directions of the prior
    prior_width: int = Field(32, ge=8, multiple_of=8)  # channels are normalised in groups of eight
    prior_levels: int = Field(3, ge=1)
    shrink: int = Field(1, ge=1)  # factor by which the prior reduces the input's sides
    prior: PriorConfig = PriorConfig()

    @model_validator(mode="before")
    @classmethod
    def _keys_of_0_2(cls, values: Any) -> Any:
        """Refuse keys of rlab 0.2.0 that a prior does not have."""
        if isinstance(values, dict):
            if gone := sorted(_GONE & values.keys()):
                raise ValueError(f"the key {gone[0]!r} was for agents of rlab 0.2.0, not for priors: leave it out")
            if "prior_minutes" in values:
                raise ValueError("the key 'prior_minutes' is now called 'minutes'")
        return values


def train(
    victims: Sequence[Victim],
    batch: Batch,
    validation: Batch | None,
    options: PriorOptions,
    folder: Path,
    tell: Tell = lambda figures: None,
    ranks: Ranks = ALONE,
) -> Path:
    """Write FOLDER/prior.safetensors, or resume the training in FOLDER; a validation attack with the prior ends it."""
    with ranks.alone(trainer.open_folder(folder, options, victims, batch)) as resume:
        torch.manual_seed(options.seed)
        batch, validation = trainer.hold_out(batch, validation, options)
        for victim in victims:
            victim.chunk = 8192
        samplers = trainer.samplers_for(options, victims, batch, options.patches, horizon=1)
        network = make_network(options, batch).to(options.device)
        path, done = folder / PRIOR, 0.0
        if resume is not None:
            saved = resume.recall(_STATE, "")
            logger = trainer.MetricLogger(folder / LOG, (saved or {}).get("log", ()), options.tensorboard)
            resume.create()
            write_config(folder, options.plain())
            if saved is not None:
                done = saved["done"]
                network.load_state_dict(saved["network"])
        done = ranks.same(done, options.device)
        ranks.align(network)
        seconds, noted = options.minutes * 60, time.monotonic()
        began = noted - done * seconds

        def note(done: float, loss: Tensor) -> None:
            """Record where the training stands, once in every validation interval."""
            nonlocal noted
            if resume is None or time.monotonic() - noted <= options.validation_interval * 60:
                return
            noted, line = time.monotonic(), {"prior": done, "prior_loss": float(loss)}
            state = {"done": done, "network": network.state_dict(), "log": [*logger.lines, line]}
            resume.record(_STATE, "", state)
            logger.note(line, done * options.minutes * 60)
            tell(line)

        if done < 1:
            train_prior(network, samplers, options.prior, lambda: (time.monotonic() - began) / seconds, note, ranks)
            if resume is not None:
                state = {"done": 1.0, "network": network.state_dict(), "log": list(logger.lines)}
                resume.record(_STATE, "", state)
        if resume is not None and (done < 1 or not path.exists()):
            policy = BeliefPolicy(prior=TrainedPrior(network.eval()))
            figures = trainer.validate(policy, options.patches[0], victims, validation, options)
            logger.note(figures, seconds)
            save_prior(network, path, trainer.make_card(options, figures))
            tell(figures)
        return path


def make_network(options: PriorOptions, batch: Batch) -> DirectionPrior:
    """An untrained network, or the one in the file to start from."""
    shape = (options.prior_width, options.heads, options.prior_levels, options.shrink)
    network = DirectionPrior(batch.rank, batch.x.shape[1], *shape)
    if options.start is not None:
        try:
            network.load_state_dict(read_prior(Path(options.start))[0].network.state_dict())
        except RuntimeError as error:
            raise ModelError(f"the prior in {options.start} has other heads, prior_width or prior_levels") from error
    return network
