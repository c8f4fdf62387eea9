"""Compare hardening with its baselines on the same model, data and epochs, under several attacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field
from torch import nn

from rlab.core import defaults
from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.hardening.adversaries import GradientAdversary
from rlab.hardening.baselines import AugmentationGenerator, Norm, ProjectedGradient
from rlab.hardening.evaluation import (
    RADII,
    Figures,
    RobustnessMeasurement,
    estimate_figures,
    measure_robustness,
    measured_once,
)
from rlab.hardening.options import GRADIENT, EvaluationOptions, HardenOptions
from rlab.hardening.pages import draw_methods, methods_page, methods_table
from rlab.hardening.run import harden
from rlab.hardening.trainable import goal_of, trainable, twin
from rlab.present.page import Page
from rlab.present.result import PathLike, Result
from rlab.present.table import Table
from rlab.progress import quiet, showing
from rlab.results.result import AttackResult
from rlab.runs.fingerprint import data_fingerprint
from rlab.runs.understood import say_nothing
from rlab.stats import Estimate
from rlab.storage.config import Options, check
from rlab.storage.files import read_json, write_csv, write_json
from rlab.storage.names import file_name
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

COMPARISON = "comparison.json"
UNCHANGED, OURS = "unchanged", "ours"
METHODS = (UNCHANGED, "augment", "augmix", "fgsm", "pgd", "trades", OURS)
_STRENGTH = re.compile(r"(?P<name>fgsm|pgd)(_(?P<norm>l2|linf))?(@(?P<radius>[.0-9e-]+))?$")
_PGD_STEPS = 5  # during training
Tell = Callable[[str, int, RobustnessMeasurement], None]


class Splits(NamedTuple):
    """Data for training, testing and validation; without validation data, a share of the training data is held out."""

    train: Batch
    test: Batch
    validation: Batch | None = None


class HardeningComparisonOptions(Options):
    """The methods to compare, the seeds to train each with, and how to measure them."""

    methods: tuple[str, ...] = Field(METHODS, description="methods to compare, with an optional radius: pgd_l2@0.5")
    seeds: tuple[int, ...] = (0, 1, 2)
    harden: HardenOptions = HardenOptions.model_validate({})
    evaluation: EvaluationOptions | None = Field(
        None, description="how to measure (default: by the adversary, if a policy)"
    )

    @property
    def measured_by(self) -> EvaluationOptions:
        adversary = self.harden.adversary
        own = isinstance(adversary, str) and adversary != GRADIENT
        return self.evaluation or check(EvaluationOptions, {"attack": {"policy": adversary} if own else {}})

    def seeded(self, seed: int) -> HardeningComparisonOptions:
        attack = self.measured_by.attack.model_copy(update={"seed": seed})
        evaluation = self.measured_by.model_copy(update={"attack": attack})
        return self.model_copy(update={"harden": self.harden.updated({"seed": seed}), "evaluation": evaluation})


@dataclass(frozen=True)
class HardeningComparison(Result):
    """The figures (seeds, n) of every method, by name."""

    methods: Mapping[str, Figures]
    seeds: tuple[int, ...]

    def estimates(self, method: str) -> dict[str, Estimate]:
        """Figures over seeds and samples; l2_ratio is the median distance relative to the unchanged model's."""
        return estimate_figures(self.methods[method], self.methods[UNCHANGED])

    def __repr__(self) -> str:
        return f"HardeningComparison({', '.join(self.methods)}, {len(self.seeds)} seeds)"

    def all_estimates(self) -> dict[str, dict[str, Estimate]]:
        return {method: self.estimates(method) for method in self.methods}

    def table(self) -> Table:
        """One row per method, one column per figure."""
        return methods_table(self.all_estimates())

    def records(self) -> list[dict[str, Any]]:
        """One row per method and figure, with its interval."""
        return [
            {"method": method, "figure": name, "value": e.value, "low": e.low, "high": e.high}
            for method, each in self.all_estimates().items()
            for name, e in each.items()
        ]

    def plot(self) -> Figure:
        """Draw the shares of samples on which each method's model stays right, with their intervals."""
        return draw_methods(self.all_estimates())

    def make_page(self) -> Page:
        return methods_page("Hardening methods compared", self.records())

    def save(self, folder: PathLike) -> Path:
        """Write comparison.csv and comparison.json, and return the folder."""
        path, records = Path(folder), self.records()
        path.mkdir(parents=True, exist_ok=True)
        write_csv(path / "comparison.csv", records)
        write_json(path / COMPARISON, {"seeds": self.seeds, "figures": records})
        return path


def stored_comparison_page(folder: Path) -> Page:
    """The page of a folder that `rlab harden --compare` wrote."""
    return methods_page(f"Hardening {folder.name}", read_json(folder / COMPARISON)["figures"])


def parse_method(spec: str, options: HardenOptions, batch: Batch, goal: Goal) -> HardenOptions | None:
    """The training options of a method from METHODS, or 'pgd_l2@0.5' with a radius; None if it does not train.

    All methods share data, epochs, optimizer and the limit on clean accuracy; only the generator and the loss differ.
    """
    space = options.space(batch, goal)
    plain = {"views": 1, "distorted_weight": 1.0, "consistency_weight": 0.0}
    match spec:
        case "unchanged":
            return None
        case "ours":
            return options
        case "belief":
            return options.updated({"adversary": defaults.POLICY})
        case "standard":
            return options.updated({"views": 0})
        case "augment":
            return options.updated(plain | {"adversary": AugmentationGenerator(space)})
        case "augmix":
            loss = {"views": 2, "distorted_weight": 0.0, "consistency": "jsd", "consistency_weight": 12.0}
            return options.updated(loss | {"adversary": "augmix"})
        case "trades":
            steps = max(1, options.gradient_steps)
            aimed = GradientAdversary(space, options.radius_range, steps, 1.0, from_clean=True)
            loss = {"views": 1, "distorted_weight": 0.0, "consistency": "kl", "consistency_weight": 6.0}
            return options.updated(loss | {"adversary": aimed})
    match = _STRENGTH.match(spec)
    if match is None:
        known = ", ".join((*METHODS, "standard", "belief"))
        raise OptionError(f"unknown method {spec!r}: expected {known}, or a radius as in pgd_l2@0.5")
    radius = float(match["radius"]) if match["radius"] else 2 * RADII[batch.kind]
    norm: Norm = "l2" if match["norm"] == "l2" else "linf"
    fgsm = match["name"] == "fgsm"
    ball = ProjectedGradient(batch.bounds, goal, radius, norm, 1 if fgsm else _PGD_STEPS, random_start=not fgsm)
    return options.updated(plain | {"adversary": ball})


def compare_hardening(
    model: nn.Module | Victim,
    data: Splits,
    options: HardeningComparisonOptions | Mapping[str, Any] | None = None,
    out: Path | None = None,
    tell: Tell = lambda method, seed, measured: None,
    progress: bool = True,
) -> HardeningComparison:
    """Harden the model with every method and seed and measure each on the test data; `out` makes it resumable.

    Bars show the progress, unless you pass progress=False.
    """
    if not isinstance(options, HardeningComparisonOptions):
        options = check(HardeningComparisonOptions, options or {})
    if UNCHANGED not in options.methods:
        raise OptionError(f"expected {UNCHANGED!r} among the methods: the others are measured against it")
    if len(data.test) < 2 or not options.seeds:
        numbers = f"{len(data.test)} and {len(options.seeds)}"
        raise DataError(f"expected at least two test samples and one seed, got {numbers}")
    victim = trainable(model, data.train)
    for name in options.methods:
        parse_method(name, options.harden, data.train, goal_of(victim))  # refuse bad names before training
    measured: dict[str, list[RobustnessMeasurement]] = {name: [] for name in options.methods}
    with showing(progress), ExitStack() as stack:
        resume = None if out is None else stack.enter_context(open_run(out, {"command": "harden --compare"}))
        if resume is not None:
            resume.create()
        for seed in options.seeds:
            chosen, unchanged = options.seeded(seed), None
            for name in sorted(options.methods, key=lambda name: name != UNCHANGED):
                measured[name].append(_measure(victim, data, chosen, name, resume, unchanged))
                unchanged = unchanged or measured[name][-1].attack
                tell(name, seed, measured[name][-1])
    figures = {
        name: {figure: np.stack([m.figures[figure] for m in each]) for figure in each[0].figures}
        for name, each in measured.items()
    }
    return HardeningComparison(figures, options.seeds)


def _measure(
    victim: TorchVictim,
    data: Splits,
    options: HardeningComparisonOptions,
    method: str,
    resume: Resume | None,
    unchanged: AttackResult | None,
) -> RobustnessMeasurement:
    """The stored measurement of a method under one seed or a new one; `unchanged` is the attack on the unchanged model."""
    evaluation, name = options.measured_by, f"{file_name(method)}-{options.harden.seed}"
    trained_on = [data_fingerprint(part) for part in (data.train, data.validation) if part is not None]

    def make() -> RobustnessMeasurement:
        folder = None if resume is None else resume.folder / name
        hardened = _hardened(victim, data, options.harden, method, folder)
        measured = measure_robustness(hardened, data.test, evaluation, unchanged)
        return replace(measured, attack=measured.attack if method == UNCHANGED else None)

    return measured_once(resume, name, make, evaluation, data.test, [victim, options.harden, trained_on])


def _hardened(
    victim: TorchVictim, data: Splits, options: HardenOptions, method: str, folder: Path | None
) -> TorchVictim:
    chosen = parse_method(method, options, data.train, goal_of(victim))
    if chosen is None:
        return twin(victim)
    unseen = data.validation
    hardened = harden(victim, data.train, chosen, validation=unseen, out=folder, progress=quiet, announce=say_nothing)
    if folder is not None:
        hardened.save(folder)
    return hardened.victim
