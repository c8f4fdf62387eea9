"""Trains a compass by the gradient of models that can be differentiated: a step along a direction must lower the margin.

Each head may specialise: a sample's loss is that of its best head, with a little of all of them so that none is left behind
(multiple choice learning, Guzman-Rivera et al. 2012).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.agents.compass import Compass, unit
from rlab.filters.palette import unit_scale
from rlab.goals import Goal
from rlab.grid import PatchGrid
from rlab.victims.torch_module import TorchVictim


@dataclass(frozen=True)
class GuideConfig:
    """How to learn; lengths are L2 in the data's units of one."""

    batch: int = 128
    rate: float = 1e-3
    lengths: tuple[float, float] = (
        0.4,
        2.0,
    )  # of a step at single points; at patches of v points, v ** 0.25 times that
    shared: float = 0.2  # weight of the mean over the heads beside the best one
    mirror: bool = False  # half the batches with their last axis reversed
    zoom: float = 1.0  # the smallest part of each side that a batch may be cut to, before it is stretched to full size


@dataclass(frozen=True)
class Lesson:
    """A training model and the inputs it gets right."""

    victim: TorchVictim
    x: Tensor
    y: Tensor


def guide(
    compass: Compass,
    lessons: Sequence[Lesson],
    grids: Sequence[PatchGrid],
    bounds: tuple[float, float],
    goal: Goal,
    config: GuideConfig,
    progress: Callable[[], float],
    tell: Callable[[float, Tensor], None] = lambda done, loss: None,
) -> None:
    """Trains in place until progress() reaches 1; tell() hears of every step's progress and loss."""
    optimizer = torch.optim.AdamW(compass.parameters(), lr=config.rate, weight_decay=1e-4)
    device, step = next(compass.parameters()).device, 0
    compass.train()
    while (done := progress()) < 1:
        for group in optimizer.param_groups:
            group["lr"] = config.rate * min(1.0, step / 100 + 0.01, 2 * (1 - done) + 0.02)
        lesson = lessons[int(torch.randint(len(lessons), ()))]
        grid = grids[int(torch.randint(len(grids), ()))]
        rows = torch.randint(len(lesson.x), (config.batch,), device=lesson.x.device)
        x, y = _varied(lesson.x[rows], config), lesson.y[rows]
        scale = unit_scale(x, bounds)[1]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            directions = compass(x / scale)
        steps = _coarse(directions, grid) * _lengths(len(x), grid, config).to(x.device).view(
            -1, 1, *(1,) * (x.dim() - 1)
        )
        moved = (x[:, None] + steps * scale[:, None]).clamp(*bounds)
        loss = _loss(lesson.victim, moved, y, goal, config.shared)
        optimizer.zero_grad()
        loss.backward(inputs=list(compass.parameters()))  # the models' own weights need no gradient
        torch.nn.utils.clip_grad_norm_(compass.parameters(), 1.0)
        optimizer.step()
        step += 1
        tell(done, loss.detach())
    compass.eval()


def _varied(x: Tensor, config: GuideConfig) -> Tensor:
    """The same cut and mirror for all of a batch."""
    size = x.shape[2:]
    if config.zoom < 1:
        sides = [round(length * float(config.zoom + (1 - config.zoom) * torch.rand(()))) for length in size]
        starts = [int(torch.randint(length - side + 1, ())) for length, side in zip(size, sides, strict=True)]
        cut: Any = (..., *(slice(at, at + side) for at, side in zip(starts, sides, strict=True)))
        x = F.interpolate(x[cut], size=size, mode=("linear", "bilinear", "trilinear")[len(size) - 1])
    return x.flip(-1) if config.mirror and torch.rand(()) < 0.5 else x


def _coarse(directions: Tensor, grid: PatchGrid) -> Tensor:
    """The directions as coarse as the patches they will be used on, of length one again."""
    return unit(grid.expand(grid.reduce(directions)))


def _lengths(n: int, grid: PatchGrid, config: GuideConfig) -> Tensor:
    low, high = config.lengths
    points = float(torch.tensor(grid.patch).prod())
    return (low + (high - low) * torch.rand(n)) * points**0.25


def _loss(victim: TorchVictim, moved: Tensor, y: Tensor, goal: Goal, shared: float) -> Tensor:
    """moved (n, heads, c, *size) -> the best head's margin, softly bounded below, and a share of all heads'."""
    n, k = moved.shape[:2]
    margin = goal.margin(victim.graded(moved.flatten(0, 1), "train"), y.repeat_interleave(k)).view(n, k)
    left = F.softplus(margin + 1.0)
    return left.amin(1).mean() + shared * left.mean()
