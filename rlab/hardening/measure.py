"""How robust a model is, sample by sample, under attacks that look at it and distortions that do not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.core import defaults
from rlab.core.result import AttackResult
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch, Kind
from rlab.filters import FAMILIES
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette
from rlab.hardening.baselines import Norm, pgd
from rlab.hardening.training import goal_of
from rlab.options import make_attack
from rlab.policies.base import Policy
from rlab.victims.torch_module import TorchVictim

Floats = NDArray[np.float64]
LEVELS = 5  # severities of a filter's ladder
RADII: dict[Kind, float] = {"signal": 0.02, "image": 2 / 255, "video": 2 / 255}
PolicyFor = Callable[[TorchVictim], str | Policy]  # an agent of its own for each model that is measured


@dataclass(frozen=True)
class Trial:
    """What a model is put through. What is None follows the kind of data, as in `rlab.attack`."""

    palette: Sequence[str] | None = None
    patch: int | Sequence[int] | None = None
    policy: str | Policy = defaults.POLICY
    budget: int | None = None
    chunk: int | None = None
    attacked: int | None = None  # at most so many samples are attacked with queries; the others count for the rest
    square_radius: float | None = None  # of the boxes Square shifts
    square_budget: int = 500
    pgd_radius: float | None = None
    pgd_norm: Norm = "linf"
    pgd_steps: int = 20
    seed: int = 0

    @property
    def options(self) -> dict[str, Any]:
        return {"palette": self.palette, "patch": self.patch, "budget": self.budget, "chunk": self.chunk}


@dataclass(frozen=True)
class Measured:
    """One entry a sample, (n,); NaN where a sample does not count.

    clean, agent (attacked by the policy), transfer (what the policy found on the original), square, pgd, corruptions
    (the palette's filters over the whole input, all severities) and held_out (filters outside the palette) are 1 where
    the model is right; agent_l2 is the distance the policy needed, infinite where the budget did not do.
    """

    figures: Mapping[str, Floats]
    curves: Mapping[str, Floats]  # corruptions and held_out: (levels, n)
    attack: AttackResult | None = field(default=None, repr=False)


def measure(
    victim: TorchVictim, batch: Batch, trial: Trial, before: AttackResult | None = None, policy: PolicyFor | None = None
) -> Measured:
    """`before` is the policy's attack on the original model; `policy` makes an agent for this victim alone."""
    few = batch[: trial.attacked]
    attack = make_attack(few, policy=policy(victim) if policy else trial.policy, goal=goal_of(victim), **trial.options)
    result = attack(victim, few, trial.seed)
    right, won = result.attacked.numpy(), result.succeeded.numpy()
    seen = {entry.filter.name for entry in attack.palette.entries}
    curves = corruption_curves(victim, batch, seen, trial.seed)
    figures = {
        "clean": _right(victim, batch.x, batch.y).astype(float),
        "agent": (right & ~won).astype(float),
        "agent_l2": np.where(right, np.where(won, result.final["l2"].numpy(), math.inf), math.nan),
        "agent_queries": np.where(right, np.where(won, result.effort.numpy(), attack.budget), math.nan),
        "transfer": _transfer(victim, before or result, few),
        "square": _square(victim, few, trial),
        "pgd": _pgd(victim, batch, trial),
        **{name: curve.mean(0) for name, curve in curves.items()},
    }
    return Measured(figures, curves, result)


def _right(victim: TorchVictim, x: Tensor, y: Tensor) -> NDArray[np.bool_]:
    goal = goal_of(victim)
    parts = zip(x.split(4096), y.split(4096), strict=True)
    found = [goal.correct(victim(a.to(victim.device), "verify"), b.to(victim.device)).cpu() for a, b in parts]
    return torch.cat(found).numpy()


def _transfer(victim: TorchVictim, before: AttackResult, batch: Batch) -> Floats:
    """Where the policy flipped the original: whether this model is right on those very inputs."""
    return np.where(before.succeeded.numpy(), _right(victim, before.perturbed, batch.y), math.nan)


def _square(victim: TorchVictim, batch: Batch, trial: Trial) -> Floats:
    """Square's boxes, each shifted by the radius up or down in every channel, on the patch grid: any rank."""
    radius = trial.square_radius or 4 * RADII[batch.kind]
    result = make_attack(
        batch, palette=[f"channel_shift@{radius:.6f}"], patch=trial.patch, policy="square", goal=goal_of(victim),
        budget=trial.square_budget, chunk=trial.chunk, cleanup=False,
    )(victim, batch, trial.seed)  # fmt: skip
    return (result.attacked & ~result.succeeded).numpy().astype(float)


def _pgd(victim: TorchVictim, batch: Batch, trial: Trial) -> Floats:
    goal = goal_of(victim)
    maker = pgd(batch.bounds, goal, trial.pgd_radius or RADII[batch.kind], trial.pgd_norm, trial.pgd_steps)
    held = []
    for number, (x, y) in enumerate(zip(batch.x.split(1024), batch.y.split(1024), strict=True)):
        x, y = x.to(victim.device), y.to(victim.device)
        right = goal.correct(victim(x, "verify"), y)
        held.append((right & ~maker(victim, x, y, trial.seed + number).flipped).cpu())
    return torch.cat(held).numpy().astype(float)


def corruption_curves(victim: TorchVictim, batch: Batch, seen: set[str], seed: int) -> dict[str, Floats]:
    """(levels, n) by group: accuracy over the filters in the palette, and over all others for this rank."""
    groups: dict[str, list[Filter]] = {"corruptions": [], "held_out": []}
    for one in all_filters(batch.rank, batch.x.shape[1]):
        groups["corruptions" if one.name in seen else "held_out"].append(one)
    return {
        name: np.stack([_at_level(victim, batch, filters, level, seed) for level in range(LEVELS)])
        for name, filters in groups.items()
        if filters
    }


def all_filters(rank: int, channels: int) -> list[Filter]:
    """Every built-in filter for data of this rank."""
    found = {one.name: one for family in FAMILIES.values() for one in family(channels)}
    return [one for one in found.values() if rank in one.ranks]


def _at_level(victim: TorchVictim, batch: Batch, filters: Sequence[Filter], level: int, seed: int) -> Floats:
    """(n,) the share of filters at this step of their ladder under which each sample is still right."""
    right = np.zeros(len(batch))
    for one in filters:
        severity = one.severities[round(level * (len(one.severities) - 1) / (LEVELS - 1))]
        palette = Palette((Entry(one, severity),))
        right += _right(victim, distort(palette, batch, seed, victim.device), batch.y)
    return right / len(filters)


def distort(palette: Palette, batch: Batch, seed: int, device: torch.device) -> Tensor:
    """The first entry over the whole of every input: (n, c, *size)."""
    own = int(sample_seeds(seed, 0, 1)) ^ int(hashlib.sha256(palette.names[0].encode()).hexdigest()[:8], 16)
    out = torch.empty_like(batch.x, device=device)
    for number, rows in enumerate(torch.arange(len(batch)).split(1024)):
        bank = batch.x[rows].to(device)[:, None].repeat(1, 2, *(1,) * (batch.x.dim() - 1))
        palette.fill(bank, batch.bounds, own + number)
        out[rows] = bank[:, 1]
    return out
