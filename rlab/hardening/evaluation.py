"""Measure the robustness of a model, sample by sample, under attacks and under fixed distortions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.channels import TOGETHER
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.filters import FAMILIES
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette
from rlab.hardening.baselines import RADII, ProjectedGradient
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.trainable import correct, goal_of
from rlab.progress import bar
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds
from rlab.storage.config import check
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.resume import Resume
from rlab.victims.torch_module import TorchVictim

LEVELS = 5  # severities per filter
Figures = Mapping[str, Floats]
SQUARE = "square"  # ends the name of the folder of Square's attack
_MEDIANS = frozenset({"agent_l2", "agent_queries"})  # the other figures are shares, summarised by their mean


def estimate_figures(figures: Figures, reference: Figures | None = None) -> dict[str, Estimate]:
    """Means or medians of figures (seeds, n), with intervals over seeds and samples.

    With a reference, l2_ratio is the median distance relative to the reference's.
    """
    estimates = {name: over_seeds(v, "median" if name in _MEDIANS else "mean") for name, v in figures.items()}
    if reference is not None:
        estimates["l2_ratio"] = ratio_over_seeds(figures["agent_l2"], reference["agent_l2"], "median")
    return estimates


@dataclass(frozen=True)
class RobustnessMeasurement:
    """Figures with one entry per sample, (n,); NaN where a sample does not count.

    1 where the model is correct: clean, agent (attacked by the policy), transfer (the policy's samples against the
    original model), square, pgd, corruptions (the palette's filters over the whole input, all severities) and held_out
    (filters outside the palette). agent_l2 is the distance the policy needed, infinite if its budget was too small.
    """

    figures: Figures
    curves: Figures  # corruptions and held_out: (levels, n)
    rows: int  # queries sent to the model
    attack: AttackResult = field(repr=False)

    def robustness(self, reference: RobustnessMeasurement | None = None) -> Robustness:
        """Figures with intervals over samples; with a reference also l2_ratio."""
        own, other = ({k: v[None] for k, v in m.figures.items()} for m in (self, reference or self))
        distances = np.sort(self.figures["agent_l2"][~np.isnan(self.figures["agent_l2"])])
        means = {name: curve.mean(1) for name, curve in self.curves.items()} | {"l2": distances}
        curves = {name: tuple(values.tolist()) for name, values in means.items()}
        return Robustness(estimate_figures(own, None if reference is None else other), curves, self.rows)

    def tree(self) -> dict[str, Any]:
        """What a run stores; the attack has a folder of its own."""
        parts = {"figures": self.figures, "curves": self.curves}
        plain = {part: {k: torch.from_numpy(v) for k, v in arrays.items()} for part, arrays in parts.items()}
        return {"rows": self.rows, **plain}


@dataclass(frozen=True)
class Robustness:
    """The figures of one measurement, as a run stores them."""

    figures: Mapping[str, Estimate]
    curves: Mapping[
        str, tuple[float, ...]
    ]  # accuracy at each level, and `l2`: the sorted distances of attacked samples
    rows: int


def measure_robustness(
    victim: TorchVictim,
    batch: Batch,
    options: EvaluationOptions,
    original: AttackResult | None = None,
    folder: Path | None = None,
) -> RobustnessMeasurement:
    """Measure a model; `original` is the attack on the model before hardening, and `folder` stores this one's attack."""
    few = options.few(batch)
    attack = options.attack.build(few)
    if attack.goal.multilabel != victim.multilabel:
        attack = replace(attack, goal=goal_of(victim))
    result = _attacked(attack, options.attack, victim, few, folder)
    square = _square(victim, few, options, folder and folder.with_name(f"{folder.name}-{SQUARE}"))
    first, sent = original or result, victim.rows.total()
    attacked, flipped = result.attacked.numpy(), result.succeeded.numpy()
    curves = corruption_curves(victim, batch, attack.palette, attack.seed)
    figures = {
        "clean": correct(victim, batch.x, batch.y).double().numpy(),
        "agent": _held(result),
        "agent_l2": np.where(attacked, np.where(flipped, result.final["l2"].numpy(), math.inf), math.nan),
        "agent_queries": np.where(attacked, np.where(flipped, result.effort.numpy(), attack.budget), math.nan),
        "transfer": np.where(first.succeeded, correct(victim, first.perturbed, few.y), math.nan),
        "square": _held(square),
        "pgd": _pgd(victim, batch, options),
        **{name: curve.mean(0) for name, curve in curves.items()},
    }
    rows = int(result.queries.sum() + square.queries.sum()) + victim.rows.total() - sent
    return RobustnessMeasurement(figures, curves, rows, result)


def measured_once(
    resume: Resume | None,
    key: str,
    make: Callable[[Path | None], RobustnessMeasurement],
    about: Sequence[object],
) -> RobustnessMeasurement:
    """A measurement that a resumed run reads back, if it is `about` the same; `make` gets the folder `key` for its attack."""
    if resume is None:
        return make(None)
    folder = resume.folder / key
    tree = resume.step(f"measured {key}", Contents(list(about)), lambda: make(folder).tree())
    figures, curves = ({name: values.numpy() for name, values in tree[part].items()} for part in ("figures", "curves"))
    return RobustnessMeasurement(figures, curves, tree["rows"], AttackResult.load(folder))


def _attacked(
    attack: Attack, options: AttackOptions, victim: TorchVictim, few: Batch, folder: Path | None
) -> AttackResult:
    """Attack in memory, or in a folder, where a stopped run resumes."""
    with bar(len(few), "measuring") as progress:
        return run_attack(attack, victim, few, folder, options.plain(), progress)


def _square(victim: TorchVictim, batch: Batch, options: EvaluationOptions, folder: Path | None) -> AttackResult:
    """Square, whose boxes on the patch grid shift every channel by plus or minus the radius."""
    radius, declared = options.square_radius or 4 * RADII[batch.kind], options.attack
    square = {
        "palette": [f"channel_shift@{radius:.6f}"],
        "patch": declared.patch,
        "channels": TOGETHER,
        "policy": "square",
    }
    square |= {"budget": options.square_budget, "chunk": declared.chunk, "until": "flip", "seed": declared.seed}
    chosen = check(AttackOptions, {name: value for name, value in square.items() if value is not None})
    return _attacked(replace(chosen.build(batch), goal=goal_of(victim)), chosen, victim, batch, folder)


def _held(result: AttackResult) -> Floats:
    """(n,): 1 where the model was right and stayed right; NaN outputs do not count as right."""
    kept = [status not in (Status.SKIPPED, Status.SUCCEEDED, Status.FAILED) for status in result.status]
    return np.array(kept, np.float64)


def _pgd(victim: TorchVictim, batch: Batch, options: EvaluationOptions) -> Floats:
    ball = (options.pgd_radius or RADII[batch.kind], options.pgd_norm, options.pgd_steps)
    generator = ProjectedGradient(batch.bounds, goal_of(victim), *ball, random_start=True)
    flipped = generator.over(victim, batch, 1024, options.attack.seed).flipped
    return (correct(victim, batch.x, batch.y) & ~flipped).double().numpy()


def corruption_curves(victim: TorchVictim, batch: Batch, palette: Palette, seed: int) -> dict[str, Floats]:
    """Accuracy (levels, n) over the palette's filters, and over all other filters for this rank."""
    rate = batch.rate or math.inf  # filters that need a higher rate are left out
    own = {entry.filter.name: entry.filter for entry in palette.entries}
    others = {
        filter.name: filter.at_rate(batch.rate)
        for filter in all_filters(batch.rank, batch.x.shape[1])
        if filter.name not in own and (not filter.rated or rate > filter.least_rate)
    }
    return {
        name: np.stack([_at_level(victim, batch, list(filters.values()), level, seed) for level in range(LEVELS)])
        for name, filters in (("corruptions", own), ("held_out", others))
        if filters
    }


def all_filters(rank: int, channels: int) -> list[Filter]:
    """All filters for this rank but the common corruptions, which have a command of their own."""
    by_name = {filter.name: filter for family in FAMILIES.values() for filter in family(channels)}
    return [filter for filter in by_name.values() if rank in filter.ranks and not filter.levels]


def _at_level(victim: TorchVictim, batch: Batch, filters: Sequence[Filter], level: int, seed: int) -> Floats:
    """(n,): share of the filters at this severity under which each sample is still correct."""
    total = torch.zeros(len(batch), dtype=torch.float64)
    for filter in filters:
        severity = filter.severities[round(level * (len(filter.severities) - 1) / (LEVELS - 1))]
        palette = Palette((Entry(filter, severity),))
        total += correct(victim, distort(palette, batch, seed, victim.device), batch.y)
    return (total / len(filters)).numpy()


def distort(palette: Palette, batch: Batch, seed: int, device: torch.device) -> Tensor:
    """Apply the first palette entry to every whole input (n, c, *size)."""
    own_seed = int(sample_seeds(seed, 0, 1)) ^ int(digest(palette.names[0].encode(), length=8), 16)
    out = torch.empty_like(batch.x, device=device)
    for number, rows in enumerate(torch.arange(len(batch)).split(1024)):
        bank = batch.x[rows].to(device)[:, None].repeat(1, 2, *(1,) * (batch.x.dim() - 1))
        palette.fill(bank, batch.bounds, own_seed + number)
        out[rows] = bank[:, 1]
    return out
