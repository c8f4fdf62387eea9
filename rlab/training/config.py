"""The options of a training, as in a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import torch
from pydantic import Field

from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.errors import DataError
from rlab.storage.config import Options, check, read_config
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

Patch = int | tuple[int, ...]


class TrainingOptions(Options):
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


def hold_out(batch: Batch, validation: Batch | None, options: TrainingOptions) -> tuple[Batch, Batch]:
    """Training and validation data; the latter are a share of the data if none are given."""
    if validation is not None:
        return batch, validation
    if len(batch) < 2:
        raise DataError("expected at least two samples, one to train on and one for validation, got one")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(options.seed)).tolist()
    share = max(1, min(options.validation_samples, len(batch) // 5))
    return batch[order[share:]], batch[order[:share]]
