"""The options of a training, as in a configuration file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from pydantic import Field

from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.errors import DataError
from rlab.storage.config import Options, check, read_config
from rlab.training.prior import PriorConfig
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

Patch = int | tuple[int, ...]
Shape = TypeVar("Shape")


class SharedOptions(Options):
    """What every training declares. Severities in palettes may be ranges: 'gaussian_noise@0.05..0.4'."""

    models: tuple[ModelOptions, ...] = Field(min_length=1)
    data: DataOptions
    validation: DataOptions | None = None  # default: a share of the data
    palettes: tuple[tuple[str, ...], ...] = Field(min_length=1)
    entries: int = Field(8, ge=1)  # palette entries per episode
    group: int = Field(32, ge=1)  # episodes that share a palette
    patches: tuple[Patch, ...] = Field(min_length=1)
    minutes: float = Field(5.0, gt=0)
    validation_palette: tuple[str, ...] | None = None
    validation_l2_penalty: float = 0.0
    validation_samples: int = Field(200, ge=1)
    budget: int = Field(500, ge=3)
    start: str | None = None  # a file to start from
    tensorboard: bool = False  # write curves to OUT/tensorboard; needs the extra 'tensorboard'
    device: str = "cpu"
    seed: int = 0

    @classmethod
    def read(cls, path: Path, minutes: float | None = None, device: str | None = None) -> Self:
        """From a YAML or TOML file; arguments override it, and `device` also moves the models."""
        before = {"minutes": minutes, "device": device}
        values = read_config(path) | {name: value for name, value in before.items() if value is not None}
        options = check(cls, values, str(path))
        if device is None:
            return options
        moved = tuple(model.model_copy(update={"device": device}) for model in options.models)
        return options.model_copy(update={"models": moved})

    def load(self) -> tuple[list[Victim], Batch, Batch | None]:
        """Models, data, and validation data if the options name any."""
        batch = self.data.load()
        victims = [load_model(model, batch.bounds) for model in self.models]
        return victims, batch, None if self.validation is None else self.validation.load()


class TrainingOptions(SharedOptions):
    """What to train a prior on and how long."""

    l2_penalties: tuple[float, float] = (0.0, 0.0)
    success: float = Field(0.2, ge=0)  # reward for a flip, as a share of the initial margin
    horizon: int = Field(60, ge=2)  # steps of the longest training episode
    validation_interval: float = Field(1.0, gt=0)  # minutes between validations
    patience: int | None = Field(None, ge=1)  # validations without improvement before it stops
    heads: int = Field(2, ge=0)  # directions of the prior; 0 for none, if models have no gradients
    prior_minutes: float = Field(2.0, ge=0)  # in addition to `minutes`
    prior_width: int = Field(32, ge=8, multiple_of=8)  # channels are normalised in groups of eight
    prior_levels: int = Field(3, ge=1)
    shrink: int = Field(1, ge=1)  # factor by which the prior reduces the input's sides
    prior: PriorConfig = PriorConfig()

    def shape(self, kind: type[Shape], **fixed: Any) -> Shape:
        """A network's shape (a dataclass) from these options; the data determine `fixed`."""
        names = {field.name for field in fields(kind)} & type(self).model_fields.keys()  # type: ignore[arg-type]
        return kind(**{name: getattr(self, name) for name in names} | fixed)


def hold_out(batch: Batch, validation: Batch | None, options: SharedOptions) -> tuple[Batch, Batch]:
    """Training and validation data; the latter are a share of the data if none are given."""
    if validation is not None:
        return batch, validation
    if len(batch) < 2:
        raise DataError("expected at least two samples, one to train on and one for validation, got one")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
    share = max(1, min(options.validation_samples, len(batch) // 5))
    return batch[order[share:]], batch[order[:share]]
