"""What hardening is compared with: plain distortion without an agent, and gradient steps within a ball (FGSM, PGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.goals import Goal
from rlab.core.rng import uniform
from rlab.errors import InputError
from rlab.filters.palette import unit_scale
from rlab.hardening.makers import Made, Maker, PerturbationSpace
from rlab.victims.torch_module import TorchVictim

Norm = Literal["l2", "linf"]


@dataclass(frozen=True)
class AugmentMaker(Maker):
    """Random entries on random patches, as many of them as chance wants: the palette without anybody who looks."""

    ground: PerturbationSpace

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Made:
        env, state = self.ground.start(victim, x, y, seed, 0)
        patches = len(env.task.grid)
        draw = uniform(state.seed, state.step, 2 * patches + 1)
        hit = draw[:, 1 : patches + 1] < draw[:, :1]  # a row's own share of patches
        entry = 1 + (draw[:, patches + 1 :] * env.task.entries).long()
        made = render(state.bank, torch.where(hit, entry, 0), env.task.grid)
        return Made(made, self.ground.goal.reached(victim(made, "train"), y))


@dataclass(frozen=True)
class GradientMaker(Maker):
    """Steepest steps on the margin's loss within a ball (Goodfellow 2015, Madry 2018, https://arxiv.org/abs/1706.06083).

    `radius` is in the data's range, or in a sample's amplitude where there is none. One step of the whole radius without
    a random start is FGSM; `steps` of `pace` with one is PGD.
    """

    bounds: tuple[float, float]
    goal: Goal
    radius: float
    norm: Norm = "linf"
    steps: int = 1
    pace: float | None = None  # of a step; the radius for one, a quarter of it for several
    random_start: bool = False

    def __post_init__(self) -> None:
        if not self.radius > 0 or self.steps < 1 or self.norm not in ("l2", "linf"):
            raise InputError(
                f"expected a radius above 0, at least one step and norm l2 or linf, "
                f"got radius {self.radius}, {self.steps} steps and norm {self.norm!r}"
            )

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Made:
        scale = unit_scale(x, self.bounds)[1]
        pace = self.pace or (self.radius if self.steps == 1 else self.radius / 4)
        delta = self._first(x, seed)
        for _ in range(self.steps):
            now = (x + delta * scale).clamp(*self.bounds)
            slope = victim.input_gradient(now, lambda scores: _loss(scores, y, self.goal), "train") * scale
            delta = self._project(delta + pace * self._steepest(slope))
            delta = ((x + delta * scale).clamp(*self.bounds) - x) / scale
        made = x + delta * scale
        made = made.clamp(*self.bounds)
        return Made(made, self.goal.reached(victim(made, "train"), y))

    def _first(self, x: Tensor, seed: int) -> Tensor:
        if not self.random_start:
            return torch.zeros_like(x)
        draw = torch.Generator(x.device).manual_seed(seed)
        if self.norm == "linf":
            return self.radius * (2 * torch.rand(x.shape, generator=draw, device=x.device) - 1)
        aim = self._steepest(torch.randn(x.shape, generator=draw, device=x.device))
        far = torch.rand((len(x), *(1,) * (x.dim() - 1)), generator=draw, device=x.device)
        return aim * self.radius * far

    def _steepest(self, slope: Tensor) -> Tensor:
        if self.norm == "linf":
            return slope.sign()
        return slope / _length(slope).clamp(min=1e-12)

    def _project(self, delta: Tensor) -> Tensor:
        if self.norm == "linf":
            return delta.clamp(-self.radius, self.radius)
        return delta * (self.radius / _length(delta).clamp(min=1e-12)).clamp(max=1)


def _length(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1).view(-1, *(1,) * (x.dim() - 1))


def _loss(scores: Tensor, y: Tensor, goal: Goal) -> Tensor:
    """(n,) the usual cross-entropy where a sample has one label, else what the goal's margin lacks."""
    if goal.multilabel:
        return -goal.margin(scores, y)
    return -scores.gather(1, y[:, None]).squeeze(1)


def fgsm(bounds: tuple[float, float], goal: Goal, radius: float, norm: Norm = "linf") -> GradientMaker:
    return GradientMaker(bounds, goal, radius, norm)


def pgd(bounds: tuple[float, float], goal: Goal, radius: float, norm: Norm = "linf", steps: int = 10) -> GradientMaker:
    """Ten steps of a quarter of the radius from a random start."""
    return GradientMaker(bounds, goal, radius, norm, steps, random_start=True)
