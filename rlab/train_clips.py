"""Training the two agents for clips: courses over models and patch sizes, validation by attack, checkpoints that resume."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rlab import __version__
from rlab.agents.course import Course, teachable
from rlab.agents.video.config import PairConfig
from rlab.agents.video.encoder import Encoder, MobileNet, read_mobilenet
from rlab.agents.video.files import save_pair
from rlab.agents.video.pair import Pair
from rlab.agents.video.policy import PairPolicy
from rlab.agents.video.ppo import Class, PairLearner, PPOConfig
from rlab.agents.video.saliency import kept, over
from rlab.config import ModelConfig, check, read_config
from rlab.data.batch import Batch
from rlab.data.load import DataConfig
from rlab.env import Task
from rlab.errors import InputError
from rlab.goals import Untargeted
from rlab.grid import PatchGrid
from rlab.journal import Journal
from rlab.loop import make_attack
from rlab.result import AttackResult
from rlab.victims.base import Victim

AGENT, CHECKPOINT, LOG, CONFIG = "agent.safetensors", "checkpoint.pt", "log.jsonl", "train.json"
Tell = Callable[[dict[str, float]], None]


class ClipsConfig(BaseModel):
    """What to train on, what to see, how long. Palettes hold specs whose severity may be a range, 'gaussian_noise@0.05..0.4'."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["clips"] = "clips"
    models: list[ModelConfig] = Field(min_length=1)
    data: DataConfig
    validation: DataConfig | None = None  # a share of the data where none is given
    palettes: list[list[str]] = Field(min_length=1)
    entries: int = Field(3, ge=1)  # palette entries an episode has
    patches: list[int | list[int]] = Field(min_length=1)  # one number is a square on a single frame
    prices: tuple[float, float] = (0.0, 0.0)
    success: float = Field(0.5, ge=0)  # what a flip is worth, as a share of the margin at the start
    horizon: int = Field(40, ge=2)  # steps of the longest training episode
    minutes: float = Field(5.0, gt=0)
    evaluate: float = Field(1.0, gt=0)  # minutes between validations
    patience: int | None = Field(None, ge=1)  # validations without a better one before it stops
    validation_palette: list[str] | None = None
    validation_price: float = 0.0
    validation_samples: int = Field(32, ge=1)
    budget: int = Field(1000, ge=3)
    width: int = Field(32, ge=2)
    entry_width: int = Field(16, ge=1)
    blocks: int = Field(2, ge=0)
    levels: int = Field(2, ge=1, le=3)
    coarse: int = Field(4, ge=1)
    encoder: Encoder = "small"
    mobilenet: str | None = None  # weights of MobileNet-V2, where it is the encoder
    temporal: bool = True  # False trains the spatial agent alone, on every frame
    hints: bool = False  # show the agents objectness and motion; using them then needs OpenCV too
    flips: bool = False  # also train on the clips mirrored, where the models have those right
    saliency: str | None = None  # a file to keep objectness and motion in; made at first where OpenCV is
    learner: PPOConfig = PPOConfig()
    tensorboard: bool = False  # curves in OUT/tensorboard; needs the extra 'tensorboard'
    device: str = "cpu"
    seed: int = 0

    def shape(self, channels: int) -> PairConfig:
        return PairConfig(
            channels, self.width, self.entry_width, self.blocks, self.levels, self.coarse, self.encoder,
            self.temporal, self.hints,
        )  # fmt: skip


def train(config: ClipsConfig, out: Path, tell: Tell = lambda figures: None) -> Path:
    """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
    torch.manual_seed(config.seed)
    batch, validation = _data(config)
    victims = [model.load(batch) for model in config.models]
    for victim in victims:
        victim.chunk = max(victim.chunk, config.learner.rows)
    mobilenet = _mobilenet(config)
    pair = Pair(config.shape(batch.x.shape[1])).to(config.device)
    learner = PairLearner(pair, _classes(config, pair, victims, batch), config.learner, mobilenet)
    out.mkdir(parents=True, exist_ok=True)
    spent, best = _resume(out, learner, config)
    (out / CONFIG).write_text(config.model_dump_json(indent=1))
    journal = Journal(out / LOG, config.tensorboard)
    learner.begin()
    began, judged, idle, rounds = time.monotonic() - spent, time.monotonic(), 0, 0
    while True:
        share = min(1.0, (time.monotonic() - began) / (config.minutes * 60))
        figures = learner.round(share)
        rounds += 1
        finished = share >= 1
        if finished or time.monotonic() - judged > config.evaluate * 60:
            figures |= _validate(config, pair, mobilenet, victims, validation) | {"rounds": rounds, "progress": share}
            score = _score(figures, config.budget)
            idle = 0 if score > best else idle + 1
            if score > best:
                best = score
                save_pair(pair, out / AGENT, _about(config, figures))
            _checkpoint(out, learner, time.monotonic() - began, best)
            journal.note(figures, time.monotonic() - began)
            tell(figures)
            judged = time.monotonic()
            finished = finished or (config.patience is not None and idle >= config.patience)
        if finished:
            return out / AGENT


def read_training(path: Path, minutes: float | None = None, device: str | None = None) -> ClipsConfig:
    """A training configuration from YAML or TOML; `device` also moves the models."""
    values = read_config(path)
    if minutes is not None:
        values["minutes"] = minutes
    if device is not None:
        values["device"] = device
        values["models"] = [model | {"device": device} for model in values.get("models", [])]
    return check(ClipsConfig, values)


def _mobilenet(config: ClipsConfig) -> MobileNet | None:
    if config.encoder != "mobilenet":
        return None
    if config.mobilenet is None:
        raise InputError(
            "the encoder 'mobilenet' needs weights: name their file in the configuration's field 'mobilenet'"
        )
    return read_mobilenet(config.mobilenet).to(config.device)


def _data(config: ClipsConfig) -> tuple[Batch, Batch]:
    batch = config.data.load()
    if batch.kind != "video":
        raise InputError(
            f"expected clips to train the two agents on, got {batch.kind} samples: train those with a Q-map"
        )
    if config.validation is not None:
        return batch, config.validation.load()
    if len(batch) < 2:
        raise InputError("expected at least two clips, one to train on and one to validate with, got one")
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(config.seed)).tolist()
    held = max(1, min(config.validation_samples, len(batch) // 5))
    return batch[order[held:]], batch[order[:held]]


def sides(patch: int | list[int]) -> list[int]:
    """One number is a square on a single frame."""
    return [1, patch, patch] if isinstance(patch, int) else patch


def _classes(config: ClipsConfig, pair: Pair, victims: list[Victim], batch: Batch) -> list[Class]:
    maps, clips, labels = _maps(config, batch), batch.x, batch.y
    if config.flips:
        clips, labels = torch.cat([clips, clips.flip(-1)]), torch.cat([labels, labels])
        maps = None if maps is None else torch.cat([maps, maps.flip(-1)])
    made = []
    for number, victim in enumerate(victims):
        x, y = clips.to(victim.device), labels.to(victim.device)
        tasks = [_task(config, batch, patch) for patch in config.patches]
        right = teachable(victim, x, y, tasks[0])
        chance = random.Random(config.seed * 1000 + number)
        for task in tasks:
            course = Course(victim, x[right], y[right], batch.bounds, task, config.palettes, config.prices, chance)
            salient = None if maps is None else over(maps[right.cpu()], task.grid).to(x.device)
            made.append(Class(course, salient, pair.hierarchy(task.grid)))
    return made


def _task(config: ClipsConfig, batch: Batch, patch: int | list[int]) -> Task:
    grid = PatchGrid.of(batch.size, sides(patch))
    return Task(grid, config.entries, Untargeted(), config.horizon, success=config.success)


def _maps(config: ClipsConfig, batch: Batch) -> Tensor | None:
    """Objectness and motion of the training clips, where a reward asks for them."""
    if not (config.learner.objectness or config.learner.motion):
        return None
    low, high = batch.bounds
    unit = (batch.x - low) / (high - low) if math.isfinite(high - low) else batch.x
    return kept(unit, batch.ids, None if config.saliency is None else Path(config.saliency))


def _validate(
    config: ClipsConfig, pair: Pair, mobilenet: MobileNet | None, victims: list[Victim], batch: Batch
) -> dict[str, float]:
    """The real attack on held-out clips, for the first patch size; means over the victims."""
    pair.eval()
    figures: list[dict[str, float]] = []
    for victim in victims:
        attack = make_attack(
            batch,
            palette=config.validation_palette,
            patch=sides(config.patches[0]),
            budget=config.budget,
            policy=PairPolicy(pair, mobilenet=mobilenet),
            price=config.validation_price,
        )
        figures.append(_figures(attack(victim, batch[: config.validation_samples], config.seed)))
    pair.train()
    return {key: sum(one[key] for one in figures) / len(figures) for key in figures[0]}


def _figures(result: AttackResult) -> dict[str, float]:
    found = {key: result.summary()[key] for key in ("success", "median_queries", "median_search", "median_l2")}
    won = result.succeeded
    return found | {"median_map255": float(result.final["map255"][won].median()) if won.any() else math.nan}


def _score(figures: dict[str, float], budget: int) -> float:
    """Success first, then few queries, then little distortion."""
    queries, distortion = figures["median_queries"], figures["median_map255"]
    if math.isnan(queries):
        return -0.002 * budget
    return figures["success"] - 0.002 * queries - 0.01 * distortion


def _about(config: ClipsConfig, figures: dict[str, float]) -> dict[str, Any]:
    return {"rlab": __version__, "config": json.loads(config.model_dump_json()), "validation": figures}


def _checkpoint(out: Path, learner: PairLearner, spent: float, best: float) -> None:
    beside = out / (CHECKPOINT + ".part")
    torch.save({"learner": learner.state_dict(), "spent": spent, "best": best}, beside)
    beside.replace(out / CHECKPOINT)


def _resume(out: Path, learner: PairLearner, config: ClipsConfig) -> tuple[float, float]:
    """Seconds trained and best score so far."""
    if not (out / CHECKPOINT).exists():
        return 0.0, -math.inf
    before = (out / CONFIG).read_text() if (out / CONFIG).exists() else ""
    if before and before != config.model_dump_json(indent=1):
        raise InputError(f"{out} holds a training of another configuration: name another folder with --out")
    saved = torch.load(out / CHECKPOINT, weights_only=True, map_location=config.device)
    learner.load_state_dict(saved["learner"])
    return float(saved["spent"]), float(saved["best"])
