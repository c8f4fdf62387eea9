"""Training the Q-map agent: samplers over models and patch sizes, validation with the real attack."""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
from pydantic import Field

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.options import make_attack
from rlab.policies.learned import LearnedPolicy, read_agent, save_agent
from rlab.policies.qmap import QMap, QMapConfig
from rlab.training.dqn import Learner, LearnerConfig
from rlab.training.episodes import EpisodeSampler, teachable
from rlab.training.trainer import (
    AGENT,
    CHECKPOINT,
    CONFIG,
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

__all__ = ["AGENT", "CHECKPOINT", "CONFIG", "LOG", "TrainConfig", "read_training", "train"]


class TrainConfig(TrainingConfig):
    """The options of every training, and those of a Q-map."""

    practice: int | None = Field(None, ge=1)  # only the first so many take part in Q-learning; the compass sees all
    start: str | None = None  # an agent's file to begin with
    group: int = Field(32, ge=1)  # rows that share a palette
    width: int = 32
    blocks: int = 2
    shares: tuple[float, ...] = (0.02, 0.06, 0.2)  # of the patches that a set may change
    learner: LearnerConfig = LearnerConfig()


def train(config: TrainConfig, out: Path, tell: Tell = lambda figures: None) -> Path:
    """Writes OUT/agent.safetensors, the best on validation; goes on from OUT/checkpoint.pt where there is one."""
    torch.manual_seed(config.seed)
    batch, validation = divided(config)
    victims = [model.load(batch) for model in config.models]
    for victim in victims:
        victim.chunk = 8192
    every = [c for i, v in enumerate(victims) for c in _samplers(config, v, batch, i)]
    victims = victims[: config.practice]
    samplers = [sampler for sampler in every if sampler.victim in victims]
    network = _network(config, batch).to(config.device)
    training = Training(
        config,
        Learner(network, samplers, config.learner),
        out,
        validate=lambda: _validate(config, network, victims, validation),
        score=lambda figures: _score(figures, config.budget),
        save=lambda path, about: save_agent(network, path, about),
        tell=tell,
    )
    return training.run(network.compass, every, batch.bounds)


def read_training(path: Path, minutes: float | None = None, device: str | None = None) -> TrainConfig:
    """A training configuration from YAML or TOML; `device` also moves the models."""
    return read_config_of(TrainConfig, path, minutes, device)


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
    """Of an agent's compass and its values, whichever has the same shape."""
    held = read_agent(path)[0].state_dict()
    own = network.state_dict()
    parts = ([key for key in own if key.startswith("compass.")], [key for key in own if not key.startswith("compass.")])
    fitting = [
        part for part in parts if part and all(key in held and held[key].shape == own[key].shape for key in part)
    ]
    if not fitting:
        said = "heads, compass_width, compass_levels, width, blocks and shares"
        raise InputError(f"neither the compass nor the values in {path} have the shape that {said} say")
    network.load_state_dict({key: held[key] for part in fitting for key in part}, strict=False)


def _samplers(config: TrainConfig, victim: Victim, batch: Batch, number: int) -> list[EpisodeSampler]:
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
            EpisodeSampler(
                victim,
                x[right],
                y[right],
                batch.bounds,
                task,
                config.palettes,
                config.l2_penalties,
                chance,
                config.group,
                rate=batch.rate,
                unit=batch.unit,
            )
        )
    return made


def _validate(config: TrainConfig, network: QMap, victims: list[Victim], batch: Batch) -> Figures:
    """The real attack on held-out samples, for the first patch size; means over the victims."""
    network.eval()
    figures: list[Figures] = []
    for victim in victims:
        attack = make_attack(
            batch,
            palette=config.validation_palette,
            patch=config.patches[0],
            budget=config.budget,
            policy=LearnedPolicy(network),
            l2_penalty=config.validation_l2_penalty,
            patience=2,
            chunk=len(batch) if config.device != "cpu" else None,
        )
        found = attack(victim, batch[: config.validation_samples], config.seed).summary()
        figures.append({key: found[key] for key in ("success", "median_queries", "median_search", "median_l2")})
    network.train()
    return mean_figures(figures)


def _score(figures: Figures, budget: int) -> float:
    """Success first, then few queries."""
    queries = figures["median_queries"]
    return figures["success"] - 0.002 * (budget if math.isnan(queries) else queries)
