"""Measure the robustness of a model, sample by sample, under attacks and under fixed distortions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.core.channels import TOGETHER
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch, Kind
from rlab.filters import FAMILIES
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette
from rlab.hardening.baselines import ProjectedGradient
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.run import Hardened
from rlab.hardening.trainable import correct, fitting_threads, goal_of
from rlab.progress import bar
from rlab.results.result import AttackResult, Setting, Status, from_parts, to_arrays, to_rows
from rlab.runs.attack import run_attack
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.options import make_attack
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.resume import Resume, open_run
from rlab.victims.torch_module import TorchVictim

LEVELS = 5  # severities per filter
RADII: dict[Kind, float] = {"signal": 0.02, "image": 2 / 255, "video": 2 / 255}
Figures = Mapping[str, Floats]
MEASUREMENTS = "measurements"  # a folder
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
    attack: AttackResult | None = field(default=None, repr=False)

    def estimates(self, reference: RobustnessMeasurement | None = None) -> dict[str, Estimate]:
        """Figures with intervals over samples; with a reference also l2_ratio."""
        own, other = ({k: v[None] for k, v in m.figures.items()} for m in (self, reference or self))
        return estimate_figures(own, None if reference is None else other)

    @property
    def means(self) -> dict[str, list[float]]:
        """For charts: mean accuracy at each level, and the distances of all attacked samples in order."""
        distances = np.sort(self.figures["agent_l2"][~np.isnan(self.figures["agent_l2"])])
        return {name: curve.mean(1).tolist() for name, curve in self.curves.items()} | {"l2": distances.tolist()}

    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {"rows": self.rows}
        for part, arrays in (("figures", self.figures), ("curves", self.curves)):
            tree[part] = {name: torch.from_numpy(values) for name, values in arrays.items()}
        if self.attack is not None:
            timeless = replace(self.attack, seconds=0 * self.attack.seconds)  # two runs store the same bytes
            setting, rows = self.attack.setting.to_json(), to_rows(timeless)
            tree["attack"] = {"setting": setting, "rows": rows, "arrays": to_arrays(self.attack)}
        return tree

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> RobustnessMeasurement:
        """The inverse of `tree`."""
        parts = {part: {name: values.numpy() for name, values in tree[part].items()} for part in ("figures", "curves")}
        stored = tree.get("attack")
        attack = stored and from_parts(Setting.from_json(stored["setting"]), stored["rows"], stored["arrays"])
        return cls(parts["figures"], parts["curves"], tree["rows"], attack)


def measure_robustness(
    victim: TorchVictim,
    batch: Batch,
    options: EvaluationOptions,
    original: AttackResult | None = None,
) -> RobustnessMeasurement:
    """Measure a model; `original` is the attack on the model before hardening."""
    few, rows = options.few(batch), victim.rows.total()
    attack = options.attack.build(few)
    if attack.goal.multilabel != victim.multilabel:
        attack = replace(attack, goal=goal_of(victim))
    with bar(len(few), "measuring") as progress:
        result = run_attack(attack, victim, few, progress=progress)
    first = original or result
    attacked, flipped = result.attacked.numpy(), result.succeeded.numpy()
    curves = corruption_curves(victim, batch, attack.palette, attack.seed)
    figures = {
        "clean": correct(victim, batch.x, batch.y).double().numpy(),
        "agent": _held(result),
        "agent_l2": np.where(attacked, np.where(flipped, result.final["l2"].numpy(), math.inf), math.nan),
        "agent_queries": np.where(attacked, np.where(flipped, result.effort.numpy(), attack.budget), math.nan),
        "transfer": np.where(first.succeeded, correct(victim, first.perturbed, few.y), math.nan),
        "square": _square(victim, few, options),
        "pgd": _pgd(victim, batch, options),
        **{name: curve.mean(0) for name, curve in curves.items()},
    }
    return RobustnessMeasurement(figures, curves, victim.rows.total() - rows, result)


def measure_before_after(
    hardened: Hardened, test: Batch, options: EvaluationOptions, folder: Path | None
) -> dict[str, RobustnessMeasurement]:
    """Measure 'before' and 'after' on test data; a folder stores both."""
    about = [hardened.original, hardened.victim]
    with ExitStack() as stack:
        stack.enter_context(fitting_threads(hardened.original, test))
        question = {"command": "measure robustness"}
        resume = None if folder is None else stack.enter_context(open_run(folder / MEASUREMENTS, question))

        def measured(when: str, victim: TorchVictim, original: AttackResult | None = None) -> RobustnessMeasurement:
            make = partial(measure_robustness, victim, test, options, original)
            return measured_once(resume, when, make, options, test, about)

        before = measured("before", hardened.original)
        return {"before": before, "after": measured("after", hardened.victim, before.attack)}


def measured_once(
    resume: Resume | None,
    key: str,
    make: Callable[[], RobustnessMeasurement],
    options: EvaluationOptions,
    test: Batch,
    about: object,
) -> RobustnessMeasurement:
    """The stored measurement, or a new one if the options, the test data or `about` changed or nothing is stored."""
    if resume is None:
        return make()
    named = {name: contents.mark() for name, contents in named_in(options.plain()).items()}
    whole = Contents.of([options, named, data_fingerprint(test), about])
    return RobustnessMeasurement.of(resume.step(key, whole, lambda: make().tree(), stale="remake"))


def _square(victim: TorchVictim, batch: Batch, options: EvaluationOptions) -> Floats:
    """Accuracy under Square, whose boxes on the patch grid shift every channel by plus or minus the radius."""
    radius = options.square_radius or 4 * RADII[batch.kind]
    declared = options.attack
    square = make_attack(
        batch, palette=(f"channel_shift@{radius:.6f}",), patch=declared.patch, channels=TOGETHER, policy="square",
        goal=goal_of(victim),
        budget=options.square_budget, chunk=declared.chunk, until="flip", seed=declared.seed,
    )  # fmt: skip
    with bar(len(batch), "measuring by Square") as progress:
        result = run_attack(square, victim, batch, progress=progress)
    return _held(result)


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
    groups: dict[str, list[Filter]] = {"corruptions": [], "held_out": []}
    own = {entry.filter.name: entry.filter for entry in palette.entries}
    others = [filter for filter in all_filters(batch.rank, batch.x.shape[1]) if filter.name not in own]
    rate = batch.rate or math.inf  # filters that need a higher rate are left out
    bound = {
        filter.name: filter.at_rate(batch.rate) for filter in others if not filter.rated or rate > filter.least_rate
    }
    for name, filter in {**own, **bound}.items():
        groups["corruptions" if name in own else "held_out"].append(filter)
    return {
        name: np.stack([_at_level(victim, batch, filters, level, seed) for level in range(LEVELS)])
        for name, filters in groups.items()
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
