"""Training the two agents for clips: samplers over models and patch sizes, validation with the real attack."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.options import make_attack
from rlab.policies.video.config import PairConfig
from rlab.policies.video.encoder import Encoder, MobileNet, read_mobilenet
from rlab.policies.video.files import read_pair, save_pair
from rlab.policies.video.pair import Pair
from rlab.policies.video.policy import PairPolicy
from rlab.policies.video.saliency import kept, over
from rlab.training.episodes import EpisodeSampler, teachable
from rlab.training.ppo import Class, PairLearner, PPOConfig
from rlab.training.trainer import (
    AGENT,
    CHECKPOINT,
    CONFIG,
    GUIDED,
    LOG,
    Figures,
    Tell,
    Training,
    TrainingConfig,
    divided,
    mean_figures,
)
from rlab.training.trainer import read as read_config_of
from rlab.victims.base import Victim

__all__ = ["AGENT", "CHECKPOINT", "CONFIG", "GUIDED", "LOG", "ClipsConfig", "read_training", "train"]


class ClipsConfig(TrainingConfig):
    """The options of every training, and those of the two agents. A patch of one number is a square on a single frame."""

    kind: Literal["clips"] = "clips"
    entries: int = Field(3, ge=1)
    success: float = Field(0.5, ge=0)
    horizon: int = Field(40, ge=2)
    validation_samples: int = Field(32, ge=1)
    budget: int = Field(1000, ge=3)
    width: int = Field(32, ge=2)
    entry_width: int = Field(16, ge=1)
    blocks: int = Field(2, ge=0)
    levels: int = Field(2, ge=1, le=3)
    coarse: int = Field(4, ge=1)
    heads: int = Field(0, ge=0)
    compass_width: int = Field(16, ge=1)
    shrink: int = Field(2, ge=1)
    thrift: float = Field(0.0, ge=0)
    keeps: float | None = None  # the logit by which an untrained temporal agent keeps a frame
    encoder: Encoder = "small"
    mobilenet: str | None = None  # weights of MobileNet-V2, where it is the encoder
    temporal: bool = True  # False trains the spatial agent alone, on every frame
    hints: bool = False  # show the agents objectness and motion; using them then needs OpenCV too
    flips: bool = False  # also train on the clips mirrored, where the models have those right
    saliency: str | None = None  # a file to keep objectness and motion in; made at first where OpenCV is
    start: str | None = None  # agents to begin with, of the same shape
    learner: PPOConfig = PPOConfig()

    def shape(self, channels: int) -> PairConfig:
        return PairConfig(
            channels, self.width, self.entry_width, self.blocks, self.levels, self.coarse, self.encoder,
            self.temporal, self.hints, self.heads, self.compass_width, self.compass_levels, self.shrink, self.thrift,
        )  # fmt: skip


def train(config: ClipsConfig, out: Path, tell: Tell = lambda figures: None) -> Path:
    """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
    torch.manual_seed(config.seed)
    batch, validation = divided(config, "clips")
    if batch.kind != "video":
        raise InputError(
            f"expected clips to train the two agents on, got {batch.kind} samples: train those with a Q-map"
        )
    victims = [model.load(batch) for model in config.models]
    for victim in victims:
        victim.chunk = max(victim.chunk, config.learner.rows)
    mobilenet = _mobilenet(config)
    pair = _pair(config, batch.x.shape[1])
    classes = _classes(config, pair, victims, batch)
    training = Training(
        config,
        PairLearner(pair, classes, config.learner, mobilenet),
        out,
        validate=lambda: _validate(config, pair, mobilenet, victims, validation),
        score=lambda figures: _score(figures, config.budget),
        save=lambda path, about: save_pair(pair, path, about),
        tell=tell,
    )
    return training.run(pair.compass, [one.sampler for one in classes], batch.bounds)


def read_training(path: Path, minutes: float | None = None, device: str | None = None) -> ClipsConfig:
    """A training configuration from YAML or TOML; `device` also moves the models."""
    return read_config_of(ClipsConfig, path, minutes, device)


def _pair(config: ClipsConfig, channels: int) -> Pair:
    pair = Pair(config.shape(channels))
    if config.keeps is not None:
        torch.nn.init.constant_(pair.temporal.keep.bias, config.keeps)
    if config.start is not None:
        try:
            pair.load_state_dict(read_pair(Path(config.start))[0].state_dict())
        except RuntimeError as error:
            raise InputError(
                f"the agents in {config.start} do not have the shape that the configuration says"
            ) from error
    return pair.to(config.device)


def _mobilenet(config: ClipsConfig) -> MobileNet | None:
    if config.encoder != "mobilenet":
        return None
    if config.mobilenet is None:
        raise InputError(
            "the encoder 'mobilenet' needs weights: name their file in the configuration's field 'mobilenet'"
        )
    return read_mobilenet(config.mobilenet).to(config.device)


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
            sampler = EpisodeSampler(
                victim, x[right], y[right], batch.bounds, task, config.palettes, config.l2_penalties, chance
            )
            salient = None if maps is None else over(maps[right.cpu()], task.grid).to(x.device)
            made.append(Class(sampler, salient, pair.hierarchy(task.grid)))
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
) -> Figures:
    """The real attack on held-out clips, for the first patch size; means over the victims."""
    pair.eval()
    figures: list[Figures] = []
    for victim in victims:
        attack = make_attack(
            batch,
            palette=config.validation_palette,
            patch=sides(config.patches[0]),
            budget=config.budget,
            policy=PairPolicy(pair, mobilenet=mobilenet),
            l2_penalty=config.validation_l2_penalty,
            patience=2,
            chunk=len(batch) if config.device != "cpu" else None,
        )
        figures.append(_figures(attack(victim, batch[: config.validation_samples], config.seed)))
    pair.train()
    return mean_figures(figures)


def _figures(result: AttackResult) -> Figures:
    found = {key: result.summary()[key] for key in ("success", "median_queries", "median_search", "median_l2")}
    won = result.succeeded
    return found | {"median_map255": float(result.final["map255"][won].median()) if won.any() else math.nan}


def _score(figures: Figures, budget: int) -> float:
    """Success first, then few queries, then little distortion."""
    queries, distortion = figures["median_queries"], figures["median_map255"]
    if math.isnan(queries):
        return -0.002 * budget
    return figures["success"] - 0.002 * queries - 0.01 * distortion
