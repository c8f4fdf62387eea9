"""How robust a model is, sample by sample, under attacks that look at it and distortions that do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.core.result import AttackResult, Setting, from_parts, to_arrays, to_rows
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch, Kind
from rlab.filters import FAMILIES
from rlab.filters.base import Filter
from rlab.filters.palette import Entry, Palette
from rlab.hardening.adversaries import pgd
from rlab.hardening.hardened import Hardened
from rlab.hardening.options import EvaluationOptions
from rlab.hardening.trainable import goal_of
from rlab.options import make_attack
from rlab.policies.base import Policy
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint, digest, weights_fingerprint
from rlab.runs.resume import Resume
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds
from rlab.victims.torch_module import TorchVictim

LEVELS = 5  # severities of a filter's ladder
RADII: dict[Kind, float] = {"signal": 0.02, "image": 2 / 255, "video": 2 / 255}
PolicyFor = Callable[[TorchVictim], Policy]  # an agent of its own for each model that is measured
MEASUREMENTS = "measurements"  # the folder that keeps what was measured
_MEDIANS = frozenset({"agent_l2", "agent_queries"})  # the other figures are shares, told as means


def figure_estimate(name: str, values: Floats) -> Estimate:
    """values (seeds, n) of a figure -> its mean or median, with an interval over seeds and samples."""
    return over_seeds(values, "median" if name in _MEDIANS else "mean")


def l2_ratio(values: Floats, reference: Floats) -> Estimate:
    """How many times the reference's median distance is needed, both (seeds, n)."""
    return ratio_over_seeds(values, reference, "median")


@dataclass(frozen=True)
class RobustnessMeasurement:
    """One entry a sample, (n,); NaN where a sample does not count.

    clean, agent (attacked by the policy), transfer (what the policy found on the original), square, pgd, corruptions
    (the palette's filters over the whole input, all severities) and held_out (filters outside the palette) are 1 where
    the model is correct; agent_l2 is the distance the policy needed, infinite where the budget was not enough.
    """

    figures: Mapping[str, Floats]
    curves: Mapping[str, Floats]  # corruptions and held_out: (levels, n)
    rows: int  # that reached the model
    attack: AttackResult | None = field(default=None, repr=False)

    def estimates(self, reference: RobustnessMeasurement | None = None) -> dict[str, Estimate]:
        """Figures with intervals over samples; with a reference also how many times its L2 to flip is needed."""
        estimates = {name: figure_estimate(name, values[None]) for name, values in self.figures.items()}
        if reference is not None:
            estimates["l2_ratio"] = l2_ratio(self.figures["agent_l2"][None], reference.figures["agent_l2"][None])
        return estimates

    def tree(self) -> dict[str, Any]:
        """As `Resume` keeps it."""
        tree: dict[str, Any] = {"rows": self.rows}
        for part, arrays in (("figures", self.figures), ("curves", self.curves)):
            tree[part] = {name: torch.from_numpy(values) for name, values in arrays.items()}
        if self.attack is not None:
            setting, rows = self.attack.setting.to_json(), to_rows(self.attack)
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
    policy: Policy | None = None,
) -> RobustnessMeasurement:
    """`original` is the attack on the model before hardening; `policy` replaces the declared one."""
    few, rows = batch[: options.attacked], victim.rows.total()
    declared = options.attack if policy is None else options.attack.model_copy(update={"policy": policy})
    attack = declared.build(few)
    if attack.goal.multilabel != victim.multilabel:
        attack = replace(attack, goal=goal_of(victim))
    result = attack(victim, few)
    attacked, flipped = result.attacked.numpy(), result.succeeded.numpy()
    in_palette = {entry.filter.name for entry in attack.palette.entries}
    curves = corruption_curves(victim, batch, in_palette, attack.seed)
    figures = {
        "clean": _correct(victim, batch.x, batch.y).astype(float),
        "agent": (attacked & ~flipped).astype(float),
        "agent_l2": np.where(attacked, np.where(flipped, result.final["l2"].numpy(), math.inf), math.nan),
        "agent_queries": np.where(attacked, np.where(flipped, result.effort.numpy(), attack.budget), math.nan),
        "transfer": _transfer(victim, original or result, few),
        "square": _square(victim, few, options),
        "pgd": _pgd(victim, batch, options),
        **{name: curve.mean(0) for name, curve in curves.items()},
    }
    return RobustnessMeasurement(figures, curves, victim.rows.total() - rows, result)


def measure_before_after(
    hardened: Hardened,
    test: Batch,
    options: EvaluationOptions,
    folder: Path | None,
    policy_for: PolicyFor | None = None,
) -> dict[str, RobustnessMeasurement]:
    """'before' and 'after' on test data, kept in the folder; a policy trained for each model is never known before."""
    keep = Measurements(folder if policy_for is None else None, options, test)
    about = [weights_fingerprint(victim.model.state_dict()) for victim in (hardened.original, hardened.victim)]

    def measure(victim: TorchVictim, original: AttackResult | None) -> RobustnessMeasurement:
        return measure_robustness(victim, test, options, original, policy_for(victim) if policy_for else None)

    before = keep.once("before", about, lambda: measure(hardened.original, None))
    return {"before": before, "after": keep.once("after", about, lambda: measure(hardened.victim, before.attack))}


class Measurements:
    """Measurements kept in a folder, made anew where the question changed; nothing is kept where there is no folder."""

    def __init__(self, folder: Path | None, options: EvaluationOptions, test: Batch) -> None:
        self.resume = None if folder is None else Resume(folder / MEASUREMENTS, {"command": "measure robustness"})
        self.asked = [options.plain(), agent_fingerprint(str(options.attack.policy)), data_fingerprint(test)]

    def once(self, key: str, about: object, make: Callable[[], RobustnessMeasurement]) -> RobustnessMeasurement:
        """What was measured under this key; `about` is all it depends on beside the options and the test data."""
        if self.resume is None:
            return make()
        fingerprint = digest(self.asked, about)
        return RobustnessMeasurement.of(self.resume.step(key, fingerprint, lambda: make().tree(), stale="remake"))


def _correct(victim: TorchVictim, x: Tensor, y: Tensor) -> NDArray[np.bool_]:
    goal = goal_of(victim)
    chunks = zip(x.split(4096), y.split(4096), strict=True)
    correct = [goal.correct(victim(a.to(victim.device), "verify"), b.to(victim.device)).cpu() for a, b in chunks]
    return torch.cat(correct).numpy()


def _transfer(victim: TorchVictim, original: AttackResult, batch: Batch) -> Floats:
    """Where the policy flipped the original: whether this model is correct on those very inputs."""
    return np.where(original.succeeded.numpy(), _correct(victim, original.perturbed, batch.y), math.nan)


def _square(victim: TorchVictim, batch: Batch, options: EvaluationOptions) -> Floats:
    """Square's boxes, each shifted by the radius up or down in every channel, on the patch grid: any rank."""
    radius = options.square_radius or 4 * RADII[batch.kind]
    declared = options.attack
    square = make_attack(
        batch, palette=(f"channel_shift@{radius:.6f}",), patch=declared.patch, policy="square", goal=goal_of(victim),
        budget=options.square_budget, chunk=declared.chunk, cleanup=False, seed=declared.seed,
    )  # fmt: skip
    result = square(victim, batch)
    return (result.attacked & ~result.succeeded).numpy().astype(float)


def _pgd(victim: TorchVictim, batch: Batch, options: EvaluationOptions) -> Floats:
    goal, seed = goal_of(victim), options.attack.seed
    radius = options.pgd_radius or RADII[batch.kind]
    generator = pgd(batch.bounds, goal, radius, options.pgd_norm, options.pgd_steps)
    correct = []
    for number, (x, y) in enumerate(zip(batch.x.split(1024), batch.y.split(1024), strict=True)):
        x, y = x.to(victim.device), y.to(victim.device)
        clean = goal.correct(victim(x, "verify"), y)
        correct.append((clean & ~generator(victim, x, y, seed + number).flipped).cpu())
    return torch.cat(correct).numpy().astype(float)


def corruption_curves(victim: TorchVictim, batch: Batch, in_palette: set[str], seed: int) -> dict[str, Floats]:
    """(levels, n) by group: accuracy over the filters in the palette, and over all others for this rank."""
    groups: dict[str, list[Filter]] = {"corruptions": [], "held_out": []}
    for filter in all_filters(batch.rank, batch.x.shape[1]):
        groups["corruptions" if filter.name in in_palette else "held_out"].append(filter)
    return {
        name: np.stack([_at_level(victim, batch, filters, level, seed) for level in range(LEVELS)])
        for name, filters in groups.items()
        if filters
    }


def all_filters(rank: int, channels: int) -> list[Filter]:
    """Every built-in filter for data of this rank."""
    by_name = {filter.name: filter for family in FAMILIES.values() for filter in family(channels)}
    return [filter for filter in by_name.values() if rank in filter.ranks]


def _at_level(victim: TorchVictim, batch: Batch, filters: Sequence[Filter], level: int, seed: int) -> Floats:
    """(n,) the share of filters at this step of their ladder under which each sample is still correct."""
    correct = np.zeros(len(batch))
    for filter in filters:
        severity = filter.severities[round(level * (len(filter.severities) - 1) / (LEVELS - 1))]
        palette = Palette((Entry(filter, severity),))
        correct += _correct(victim, distort(palette, batch, seed, victim.device), batch.y)
    return correct / len(filters)


def distort(palette: Palette, batch: Batch, seed: int, device: torch.device) -> Tensor:
    """The first entry over the whole of every input: (n, c, *size)."""
    own_seed = int(sample_seeds(seed, 0, 1)) ^ int(digest(palette.names[0].encode(), length=8), 16)
    out = torch.empty_like(batch.x, device=device)
    for number, rows in enumerate(torch.arange(len(batch)).split(1024)):
        bank = batch.x[rows].to(device)[:, None].repeat(1, 2, *(1,) * (batch.x.dim() - 1))
        palette.fill(bank, batch.bounds, own_seed + number)
        out[rows] = bank[:, 1]
    return out
