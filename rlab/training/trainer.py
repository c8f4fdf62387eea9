"""What every training shares: options, samplers, validation by a real attack, logs, cards and resumable folders."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from pydantic import Field

from rlab import __version__
from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.errors import DataError, MissingExtra, optional
from rlab.policies.base import Policy
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.options import make_attack
from rlab.stats import median_of
from rlab.storage.config import Options, check, read_config
from rlab.storage.contents import Contents
from rlab.storage.files import write_text
from rlab.storage.resume import Resume, open_run
from rlab.training.episodes import EpisodeSampler, teachable
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

PRIOR, AGENT, LOG = "prior.safetensors", "agent.safetensors", "log.jsonl"
Patch = int | tuple[int, ...]
Figures = dict[str, float]
Tell = Callable[[Figures], None]


class TrainingOptions(Options):
    """What every training declares. Severities in palettes may be ranges: 'gaussian_noise@0.05..0.4'.

    `updates` in place of `minutes` makes a training repeatable to the last bit.
    """

    models: tuple[ModelOptions, ...] = Field(min_length=1)
    data: DataOptions
    validation: DataOptions | None = None  # default: a share of the data
    palettes: tuple[tuple[str, ...], ...] = Field(min_length=1)
    entries: int = Field(8, ge=1)  # palette entries per episode
    group: int = Field(32, ge=1)  # episodes that share a palette
    patches: tuple[Patch, ...] = Field(min_length=1)
    minutes: float = Field(5.0, gt=0)
    updates: int | None = Field(None, ge=1)
    validations: int = Field(10, ge=1)  # spread evenly; each ends a piece that a stopped training repeats
    keep: Literal["best", "last"] = "best"  # the weights with the best validation, or the last ones
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


def validate(
    policy: Policy[Any], patch: Patch, victims: Sequence[Victim], batch: Batch, options: TrainingOptions
) -> Figures:
    """A real attack on held-out samples, averaged over the victims."""
    attack = make_attack(
        batch,
        palette=options.validation_palette,
        patch=patch,
        budget=options.budget,
        policy=policy,
        l2_penalty=0.0,
        patience=2,
        chunk=len(batch) if options.device != "cpu" else None,
        seed=options.seed,
    )
    samples = batch[: options.validation_samples]
    each = [_figures(run_attack(attack, victim, samples)) for victim in victims]
    return {key: sum(figures[key] for figures in each) / len(each) for key in each[0]}


def _figures(result: AttackResult) -> Figures:
    summary = result.summary()
    figures = {key: summary[key] for key in ("success", "median_queries", "median_search", "median_l2")}
    return figures | {"median_map255": median_of(result.final["map255"], result.succeeded)}


class MetricLogger:
    """The log of a training: lines of JSON, and TensorBoard scalars on request.

    A resumed training passes the `lines` that its state holds, so that none is lost or written twice.
    """

    def __init__(self, path: Path, lines: Sequence[Figures] = (), tensorboard: bool = False) -> None:
        self.path, self.lines, self.writer = path, tuple(lines), None
        if tensorboard:
            module = optional("torch.utils.tensorboard", MissingExtra("tensorboard", "tensorboard"))
            self.writer = module.SummaryWriter(str(path.parent / "tensorboard"))

    def note(self, figures: Figures, seconds: float) -> None:
        """One more line, and one point of each curve at `seconds` of training."""
        self.lines = (*self.lines, figures)
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))
        if self.writer is not None:
            for name, value in figures.items():
                if math.isfinite(value):
                    self.writer.add_scalar(name, value, round(seconds))
            self.writer.flush()


def first_update(seconds: float, options: TrainingOptions) -> Figures:
    """What the first update cost, for people who wait."""
    return {"update_seconds": seconds, "planned_minutes": options.minutes}


def make_card(options: TrainingOptions, figures: Figures) -> dict[str, Any]:
    """The card of a file: models, data, the whole configuration and the validation results."""
    config = options.plain()
    models = [model["name"] for model in config["models"]]
    about = {"rlab": __version__, "trained on": config["data"]["path"], "models": models}
    return about | {"config": config, "validation": figures}


def open_folder(
    folder: Path, options: TrainingOptions, victims: Sequence[Victim], batch: Batch
) -> AbstractContextManager[Resume]:
    """The folder of a training: it resumes with the same options, models and data, and refuses others."""
    plain, models = options.plain(), Contents(list(victims))
    declared = {"command": "train", **plain, "the models": models, "the data": data_fingerprint(batch)}
    return open_run(folder, declared | named_in(plain))


def samplers_for(
    options: TrainingOptions, victims: Sequence[Victim], batch: Batch, patches: Sequence[Patch], horizon: int
) -> list[EpisodeSampler]:
    """One for every victim and patch size, on samples that the victim classifies correctly; `horizon` limits an episode."""
    grids = [PatchGrid.of(batch.size, patch) for patch in patches]
    tasks = [Task(grid, options.entries, Untargeted(), horizon) for grid in grids]
    samplers: list[EpisodeSampler] = []
    for number, victim in enumerate(victims):
        x, y, rng = batch.x.to(victim.device), batch.y.to(victim.device), random.Random(options.seed * 1000 + number)
        rows = teachable(victim, x, y, tasks[0])
        x, y = x[rows], y[rows]
        shared = (options.palettes, rng, options.group, batch.rate, batch.unit)
        samplers += [EpisodeSampler(victim, x, y, batch.bounds, task, *shared) for task in tasks]
    return samplers
