"""Training an agent: courses over models and patch sizes, validation with the real attack, checkpoints that resume."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from rlab import __version__, defaults
from rlab.agents.course import Course, teachable
from rlab.agents.learned import LearnedPolicy, save_agent
from rlab.agents.learner import Learner, LearnerConfig
from rlab.agents.qmap import QMap, QMapConfig
from rlab.config import ModelConfig, check, read_config
from rlab.data.batch import Batch
from rlab.data.load import DataConfig
from rlab.env import Task
from rlab.errors import InputError
from rlab.goals import Untargeted
from rlab.grid import PatchGrid
from rlab.loop import make_attack
from rlab.victims.base import Victim

AGENT, CHECKPOINT, LOG, CONFIG = "agent.safetensors", "checkpoint.pt", "log.jsonl", "train.json"
Tell = Callable[[dict[str, float]], None]


class TrainConfig(BaseModel):
    """What to train on, what to see, how long. Palettes hold specs whose severity may be a range, 'gaussian_noise@0.05..0.4'."""

    model_config = ConfigDict(extra="forbid")
    models: list[ModelConfig]
    data: DataConfig
    validation: DataConfig | None = None  # a share of the data where none is given
    palettes: list[list[str]]
    entries: int = Field(8, ge=1)  # palette entries an episode has
    patches: list[int | list[int]]
    prices: tuple[float, float] = (0.0, 0.0)
    success: float = Field(0.2, ge=0)  # what a flip is worth, as a share of the margin at the start
    horizon: int = Field(60, ge=2)  # steps of the longest training episode
    minutes: float = Field(5.0, gt=0)
    evaluate: float = Field(1.0, gt=0)  # minutes between validations
    patience: int | None = Field(None, ge=1)  # validations without a better one before it stops
    validation_palette: list[str] | None = None
    validation_price: float = 0.0
    validation_samples: int = Field(200, ge=1)
    budget: int = 500
    width: int = 64
    blocks: int = 4
    counts: tuple[int, ...] = (1,)  # how many patches a step may change; the agent picks among them
    learner: LearnerConfig = LearnerConfig()
    device: str = "cpu"
    seed: int = 0


def train(config: TrainConfig, out: Path, tell: Tell = lambda figures: None) -> Path:
    """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
    torch.manual_seed(config.seed)
    batch, validation = _data(config)
    victims = [model.load(batch) for model in config.models]
    for victim in victims:
        victim.chunk = 8192
    courses = [c for i, v in enumerate(victims) for c in _courses(config, v, batch, i)]
    shape = QMapConfig(batch.rank, batch.x.shape[1], config.width, config.blocks, counts=config.counts)
    learner = Learner(QMap(shape).to(config.device), courses, config.learner)
    out.mkdir(parents=True, exist_ok=True)
    spent, best = _resume(out, learner, config)
    (out / CONFIG).write_text(config.model_dump_json(indent=1))
    learner.begin()
    began, judged, idle, rounds = time.monotonic() - spent, time.monotonic(), 0, 0
    total = config.minutes * 60
    while True:
        share = min(1.0, (time.monotonic() - began) / total)
        figures = learner.round(share)
        rounds += 1
        over = share >= 1
        if over or time.monotonic() - judged > config.evaluate * 60:
            figures |= _validate(config, learner.network, victims, validation) | {"rounds": rounds, "progress": share}
            score = _score(figures, config.budget)
            if score > best:
                best, idle = score, 0
                save_agent(learner.network, out / AGENT, _about(config, figures))
            else:
                idle += 1
            _checkpoint(out, learner, time.monotonic() - began, best)
            with (out / LOG).open("a") as log:
                log.write(json.dumps(figures) + "\n")
            tell(figures)
            judged = time.monotonic()
            over = over or (config.patience is not None and idle >= config.patience)
        if over:
            return out / AGENT


def read_training(path: Path, minutes: float | None = None, device: str | None = None) -> TrainConfig:
    """A training configuration from YAML or TOML; `device` also moves the models."""
    values = read_config(path)
    if minutes is not None:
        values["minutes"] = minutes
    if device is not None:
        values["device"] = device
        values["models"] = [model | {"device": device} for model in values.get("models", [])]
    return check(TrainConfig, values)


def _data(config: TrainConfig) -> tuple[Batch, Batch]:
    batch = config.data.load()
    if config.validation is not None:
        return batch, config.validation.load()
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(config.seed)).tolist()
    held = max(1, min(config.validation_samples, len(batch) // 5))
    if len(batch) < 2:
        raise InputError("expected at least two samples, one to train on and one to validate with, got one")
    return batch[order[held:]], batch[order[:held]]


def _courses(config: TrainConfig, victim: Victim, batch: Batch, number: int) -> list[Course]:
    x, y = batch.x.to(victim.device), batch.y.to(victim.device)
    made, right = [], None
    for patch in config.patches:
        task = Task(
            PatchGrid.of(batch.size, patch), config.entries, Untargeted(), config.horizon, success=config.success
        )
        if right is None:
            right = teachable(victim, x, y, task)
        chance = random.Random(config.seed * 1000 + number)
        made.append(Course(victim, x[right], y[right], batch.bounds, task, config.palettes, config.prices, chance))
    return made


def _validate(config: TrainConfig, network: QMap, victims: list[Victim], batch: Batch) -> dict[str, float]:
    """The real attack on held-out samples, for the first patch size; means over the victims."""
    network.eval()
    figures: list[dict[str, float]] = []
    for victim in victims:
        attack = make_attack(
            batch,
            palette=config.validation_palette or defaults.PALETTES[batch.kind],
            patch=config.patches[0],
            budget=config.budget,
            policy=LearnedPolicy(network),
            price=config.validation_price,
            chunk=len(batch) if config.device != "cpu" else None,
        )
        figures.append(attack(victim, batch[: config.validation_samples], config.seed).summary())
    network.train()
    keys = ("success", "median_queries", "median_search", "median_l2")
    return {key: sum(one[key] for one in figures) / len(figures) for key in keys}


def _score(figures: dict[str, float], budget: int) -> float:
    """Success first, then few queries."""
    queries = figures["median_queries"]
    return figures["success"] - 0.002 * (budget if math.isnan(queries) else queries)


def _about(config: TrainConfig, figures: dict[str, float]) -> dict[str, Any]:
    return {"rlab": __version__, "config": json.loads(config.model_dump_json()), "validation": figures}


def _checkpoint(out: Path, learner: Learner, spent: float, best: float) -> None:
    beside = out / (CHECKPOINT + ".part")
    torch.save({"learner": learner.state_dict(), "spent": spent, "best": best}, beside)
    beside.replace(out / CHECKPOINT)


def _resume(out: Path, learner: Learner, config: TrainConfig) -> tuple[float, float]:
    """Seconds trained and best score so far."""
    if not (out / CHECKPOINT).exists():
        return 0.0, -float("inf")
    before = (out / CONFIG).read_text() if (out / CONFIG).exists() else ""
    if before and before != config.model_dump_json(indent=1):
        raise InputError(f"{out} holds a training of another configuration: name another folder with --out")
    saved = torch.load(out / CHECKPOINT, weights_only=True, map_location=config.device)
    learner.load_state_dict(saved["learner"])
    return float(saved["spent"]), float(saved["best"])
