"""Clips with one bright tube and a victim that looks at nothing else: where the weak spot is can be seen, and is known."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.papers.video import Pair, PairConfig
from rlab.papers.video.ppo import PPOConfig, PPOTrainer, RewardedSampler
from rlab.training.episodes import EpisodeSampler
from rlab.victims.callables import CallableVictim

SIZE = (4, 8, 8)
GRID = PatchGrid(SIZE, (1, 2, 2))
TINY = PairConfig(channels=1, width=16, entry_width=8, blocks=1, coarse=2)


def tubes(n: int, seed: int = 0) -> tuple[Batch, Tensor]:
    """Dim clips with one bright patch that stays in its place, and that place (n,) among a frame's patches."""
    draw = torch.Generator().manual_seed(seed)
    x = 0.3 * torch.rand(n, 1, *SIZE, generator=draw)
    place = torch.randint(16, (n,), generator=draw)
    for i, at in enumerate(place.tolist()):
        row, column = divmod(at, 4)
        x[i, 0, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 0.9
    return Batch(x, torch.zeros(n, dtype=torch.int64)), place


def bright_victim() -> CallableVictim:
    """Class 0 while some place is bright in more than half of the frames; computed in whole steps, so exactly."""

    def scores(x: Any) -> Any:
        steps = (torch.as_tensor(x)[:, 0].double() * 1024).round()
        top = GRID.total(steps).view(len(x), 4, 16).sum(1).amax(1) / (16 * 1024)
        return torch.stack([8 * (top - 0.55), torch.zeros_like(top)], 1).numpy()

    return CallableVictim(scores, outputs="logits")


def sampler(batch: Batch, budget: int = 8, entries: int = 1) -> EpisodeSampler:
    task = Task(GRID, entries, Untargeted(), budget, success=0.5)
    made = EpisodeSampler(bright_victim(), batch.x, batch.y, (0.0, 1.0), task, [["dead_pixel@1.0"]])
    made.rng = random.Random(0)
    return made


def learner(config: PairConfig = TINY, **options: Any) -> PPOTrainer:
    """On 64 clips, without a teacher: rewards alone."""
    torch.manual_seed(0)
    pair = Pair(config)
    batch, _ = tubes(64)
    known: dict[str, Any] = {
        "rows": 48,
        "rollout": 4,
        "epochs": 3,
        "batch": 192,
        "learning_rate": 4e-3,
        "entropy": 0.005,
        "teacher": 0.0,
    }
    made = PPOTrainer(
        pair, [RewardedSampler(sampler(batch), None, pair.hierarchy(GRID))], PPOConfig(**(known | options))
    )
    made.begin()
    return made
