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
from torch import Tensor

from rlab import __version__
from rlab.agents.course import Course, teachable
from rlab.agents.guide import GuideConfig, Lesson, guide
from rlab.agents.learned import LearnedPolicy, read_agent, save_agent
from rlab.agents.learner import Learner, LearnerConfig
from rlab.agents.qmap import QMap, QMapConfig
from rlab.config import ModelConfig, check, read_config
from rlab.data.batch import Batch
from rlab.data.load import DataConfig
from rlab.env import Task
from rlab.errors import InputError
from rlab.goals import Untargeted
from rlab.grid import PatchGrid
from rlab.journal import Journal
from rlab.loop import make_attack
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

AGENT, CHECKPOINT, LOG, CONFIG = "agent.safetensors", "checkpoint.pt", "log.jsonl", "train.json"
Tell = Callable[[dict[str, float]], None]


class TrainConfig(BaseModel):
    """What to train on, what to see, how long. Palettes hold specs whose severity may be a range, 'gaussian_noise@0.05..0.4'."""

    model_config = ConfigDict(extra="forbid")
    models: list[ModelConfig]
    practice: int | None = Field(None, ge=1)  # only the first so many take part in Q-learning; the compass sees all
    start: str | None = None  # an agent's file to begin with
    data: DataConfig
    validation: DataConfig | None = None  # a share of the data where none is given
    palettes: list[list[str]]
    entries: int = Field(8, ge=1)  # palette entries an episode has
    group: int = Field(32, ge=1)  # rows that share a palette
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
    width: int = 32
    blocks: int = 2
    shares: tuple[float, ...] = (0.02, 0.06, 0.2)  # of the patches that a set may change
    heads: int = Field(2, ge=0)  # directions of the compass; 0 is no compass, for models without gradients
    compass_minutes: float = Field(2.0, ge=0)  # before the minutes above
    compass_width: int = 32
    compass_levels: int = 3
    shrink: int = 1
    guide: GuideConfig = GuideConfig()
    learner: LearnerConfig = LearnerConfig()
    tensorboard: bool = False  # curves in OUT/tensorboard; needs the extra 'tensorboard'
    device: str = "cpu"
    seed: int = 0


def train(config: TrainConfig, out: Path, tell: Tell = lambda figures: None) -> Path:
    """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
    torch.manual_seed(config.seed)
    batch, validation = _data(config)
    victims = [model.load(batch) for model in config.models]
    for victim in victims:
        victim.chunk = 8192
    every = [c for i, v in enumerate(victims) for c in _courses(config, v, batch, i)]
    victims = victims[: config.practice]
    courses = [course for course in every if course.victim in victims]
    learner = Learner(_network(config, batch).to(config.device), courses, config.learner)
    out.mkdir(parents=True, exist_ok=True)
    guided, spent, best = _resume(out, learner, config)
    journal = Journal(out / LOG, config.tensorboard)
    (out / CONFIG).write_text(config.model_dump_json(indent=1))
    if guided < 1 and config.heads and config.compass_minutes:
        _guide(config, learner, every, batch.bounds, out, guided, tell)
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
            _checkpoint(out, learner, 1.0, time.monotonic() - began, best)
            journal.note(figures, time.monotonic() - began)
            tell(figures)
            judged = time.monotonic()
            over = over or (config.patience is not None and idle >= config.patience)
        if over:
            return out / AGENT


def _network(config: TrainConfig, batch: Batch) -> QMap:
    shape = QMapConfig(
        rank=batch.rank,
        channels=batch.x.shape[1],
        width=config.width,
        blocks=config.blocks,
        shares=config.shares,
        heads=config.heads,
        compass_width=config.compass_width,
        compass_levels=config.compass_levels,
        shrink=config.shrink,
    )
    network = QMap(shape)
    if config.start is not None:
        _begin_with(network, Path(config.start))
    return network


def _begin_with(network: QMap, path: Path) -> None:
    """The whole agent where it has the same shape, its compass alone where only that has."""
    other, _ = read_agent(path)
    try:
        if other.config == network.config:
            network.load_state_dict(other.state_dict())
        elif network.compass is not None and other.compass is not None:
            network.compass.load_state_dict(other.compass.state_dict())
        else:
            raise InputError(f"expected an agent with a compass to start from and heads above 0, got neither in {path}")
    except RuntimeError as error:
        said = "heads, compass_width and compass_levels"
        raise InputError(f"the compass in {path} has another shape than {said} say") from error


def _guide(
    config: TrainConfig,
    learner: Learner,
    courses: list[Course],
    bounds: tuple[float, float],
    out: Path,
    guided: float,
    tell: Tell,
) -> None:
    """Trains the compass, with a checkpoint every `evaluate` minutes."""
    lessons = [Lesson(c.victim, c.x, c.y) for c in courses if isinstance(c.victim, TorchVictim)]
    if not lessons:
        raise InputError("a compass needs a training model that can be differentiated, a torch module: set heads to 0")
    compass = learner.network.compass
    assert compass is not None
    total = max(config.compass_minutes * 60, 1e-6)
    began = time.monotonic() - guided * total
    saved = time.monotonic()

    def heard(done: float, loss: Tensor) -> None:
        nonlocal saved
        if time.monotonic() - saved > config.evaluate * 60:
            saved = time.monotonic()
            _checkpoint(out, learner, done, 0.0, -math.inf)
            tell({"compass": done, "loss": float(loss)})

    grids = [course.task.grid for course in courses]
    goal = courses[0].task.goal
    guide(compass, lessons, grids, bounds, goal, config.guide, lambda: (time.monotonic() - began) / total, heard)
    _checkpoint(out, learner, 1.0, 0.0, -math.inf)


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
        made.append(
            Course(
                victim,
                x[right],
                y[right],
                batch.bounds,
                task,
                config.palettes,
                config.prices,
                chance,
                config.group,
                rate=batch.rate,
                unit=batch.unit,
            )
        )
    return made


def _validate(config: TrainConfig, network: QMap, victims: list[Victim], batch: Batch) -> dict[str, float]:
    """The real attack on held-out samples, for the first patch size; means over the victims."""
    network.eval()
    figures: list[dict[str, float]] = []
    for victim in victims:
        attack = make_attack(
            batch,
            palette=config.validation_palette,
            patch=config.patches[0],
            budget=config.budget,
            policy=LearnedPolicy(network),
            price=config.validation_price,
            patience=2,
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
    return {
        "rlab": __version__,
        "price": config.validation_price,
        "config": json.loads(config.model_dump_json()),
        "validation": figures,
    }


def _checkpoint(out: Path, learner: Learner, guided: float, spent: float, best: float) -> None:
    beside = out / (CHECKPOINT + ".part")
    torch.save({"learner": learner.state_dict(), "guided": guided, "spent": spent, "best": best}, beside)
    beside.replace(out / CHECKPOINT)


def _resume(out: Path, learner: Learner, config: TrainConfig) -> tuple[float, float, float]:
    """How much of the compass is trained, seconds of the rest, and the best score so far."""
    if not (out / CHECKPOINT).exists():
        return 0.0, 0.0, -math.inf
    before = (out / CONFIG).read_text() if (out / CONFIG).exists() else ""
    if before and before != config.model_dump_json(indent=1):
        raise InputError(f"{out} holds a training of another configuration: name another folder with --out")
    saved = torch.load(out / CHECKPOINT, weights_only=True, map_location=config.device)
    learner.load_state_dict(saved["learner"])
    return float(saved["guided"]), float(saved["spent"]), float(saved["best"])
