"""Compare hardening with its baselines on the same model, data and epochs, under several attacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field
from torch import nn

from rlab.core import defaults
from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.hardening.adversaries import GradientAdversary
from rlab.hardening.baselines import AugmentationGenerator, Norm, ProjectedGradient
from rlab.hardening.before_after import AFTER
from rlab.hardening.evaluation import (
    RADII,
    RobustnessMeasurement,
    estimate_figures,
    measure_robustness,
    measured_once,
)
from rlab.hardening.options import GRADIENT, EvaluationOptions, HardenOptions
from rlab.hardening.report import COLUMNS, PLAIN, RULES, figures_table, shown
from rlab.hardening.run import Splits, run_hardening
from rlab.hardening.trainable import goal_of, trainable, twin
from rlab.present.page import Bar, Bars, Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Share, Table, text
from rlab.progress import quiet, showing
from rlab.results.result import AttackResult
from rlab.stats import NOTHING, Estimate
from rlab.storage.config import Options, check
from rlab.storage.names import file_name
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

UNCHANGED, OURS = "unchanged", "ours"
METHODS = (UNCHANGED, "augment", "augmix", "fgsm", "pgd", "trades", OURS)
_STRENGTH = re.compile(r"(?P<name>fgsm|pgd)(_(?P<norm>l2|linf))?(@(?P<radius>[.0-9e-]+))?$")
_PGD_STEPS = 5  # during training


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
class HardeningComparison(Report):
    """The figures of every method, by name, with intervals over seeds and samples."""

    verb: ClassVar[str] = "harden --compare"

    methods: Mapping[str, Mapping[str, Estimate]]  # l2_ratio is the median distance relative to the unchanged model's
    seeds: tuple[int, ...]

    def __repr__(self) -> str:
        return f"HardeningComparison({', '.join(self.methods)}, {len(self.seeds)} seeds)"

    def table(self) -> Table:
        """One row per method, one column per figure."""
        return figures_table(self.methods, "method")

    def records(self) -> list[dict[str, Any]]:
        """One row per method and figure, with its interval."""
        return [
            {"method": method, "figure": name, "value": e.value, "low": e.low, "high": e.high}
            for method, each in self.methods.items()
            for name, e in each.items()
        ]

    def metrics(self) -> dict[str, Metric]:
        return {f"{method}: {k}": shown(k, e) for method, each in self.methods.items() for k, e in each.items()}

    def settings(self) -> Mapping[str, Any]:
        return {"seeds": self.seeds, "methods": list(self.methods)}

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        title = f"Hardening {folder.name}" if folder else "Hardening methods compared"
        return Page(title, [Section("Methods", [self.table(), Text(RULES, quiet=True), *self._bars()])])

    def _bars(self) -> list[Bars]:
        """The shares of samples on which each method's model stays right."""
        known = [name for name in COLUMNS if name not in PLAIN and any(name in each for each in self.methods.values())]
        values = {name: {method: each.get(name, NOTHING) for method, each in self.methods.items()} for name in known}
        return [
            Bars(COLUMNS[name], [Bar(method, e.value, text(Share(e))) for method, e in own.items()])
            for name, own in values.items()
        ]


def parse_method(spec: str, options: HardenOptions, batch: Batch, goal: Goal) -> HardenOptions | None:
    """The training options of a method from METHODS, or 'pgd_l2@0.5' with a radius; None if it does not train.

    All methods share data, epochs, optimizer and the limit on clean accuracy; only the generator and the loss differ.
    """
    if spec == UNCHANGED:
        return None
    space, steps = options.space(batch, goal), max(1, options.gradient_steps)
    aimed = GradientAdversary(space, options.radius_range, steps, 1.0, from_clean=True)
    alone = {"distorted_weight": 0.0}  # consistency without cross-entropy on harder samples
    plain = {"views": 1, "distorted_weight": 1.0, "consistency_weight": 0.0}
    named: dict[str, dict[str, Any]] = {
        OURS: {},
        "belief": {"adversary": defaults.POLICY},
        "standard": {"views": 0},
        "augment": plain | {"adversary": AugmentationGenerator(space)},
        "augmix": alone | {"views": 2, "consistency": "jsd", "consistency_weight": 12.0, "adversary": "augmix"},
        "trades": alone | {"views": 1, "consistency": "kl", "consistency_weight": 6.0, "adversary": aimed},
    }
    if spec in named:
        return options.updated(named[spec]) if named[spec] else options
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
    progress: bool = True,
) -> HardeningComparison:
    """Harden the model with every method and seed and measure each on the test data; `out` makes it resumable.

    Bars show the progress, unless you pass progress=False.
    """
    if not isinstance(options, HardeningComparisonOptions):
        options = check(HardeningComparisonOptions, options or {})
    if UNCHANGED not in options.methods:
        raise OptionError(f"expected {UNCHANGED!r} among the methods: the others are measured against it")
    if data.test is None or len(data.test) < 2 or not options.seeds:
        numbers = f"{len(data.test or ())} and {len(options.seeds)}"
        raise DataError(f"expected at least two test samples and one seed, got {numbers}")
    victim = trainable(model, data.train)
    for name in options.methods:
        parse_method(name, options.harden, data.train, goal_of(victim))  # refuse bad names before training
    measured: dict[str, list[RobustnessMeasurement]] = {name: [] for name in options.methods}
    with showing(progress), ExitStack() as stack:
        resume = None if out is None else stack.enter_context(open_run(out, {"command": HardeningComparison.verb}))
        if resume is not None:
            resume.create()
        for seed in options.seeds:
            chosen, unchanged = options.seeded(seed), None
            for name in sorted(options.methods, key=lambda name: name != UNCHANGED):
                measured[name].append(_measure(victim, data, chosen, name, resume, unchanged))
                unchanged = unchanged or measured[name][-1].attack
        figures = {
            name: {figure: np.stack([m.figures[figure] for m in each]) for figure in each[0].figures}
            for name, each in measured.items()
        }
        estimates = {name: estimate_figures(each, figures[UNCHANGED]) for name, each in figures.items()}
        comparison = HardeningComparison(estimates, options.seeds)
        if resume is not None:
            comparison.write(resume.folder)
    return comparison


def _measure(
    victim: TorchVictim,
    data: Splits,
    options: HardeningComparisonOptions,
    method: str,
    resume: Resume | None,
    unchanged: AttackResult | None,
) -> RobustnessMeasurement:
    """The stored measurement of a method under one seed or a new one; `unchanged` is the attack on the unchanged model."""
    name, test = f"{file_name(method)}-{options.harden.seed}", data.test
    assert test is not None

    def make(folder: Path | None) -> RobustnessMeasurement:
        chosen, hardened = parse_method(method, options.harden, data.train, goal_of(victim)), twin(victim)
        if chosen is not None:
            data_only, out = data._replace(test=None), folder and folder.parent
            hardened = run_hardening(victim, data_only, chosen, out=out, progress=quiet).victim
        return measure_robustness(hardened, test, options.measured_by, unchanged, folder)

    return measured_once(resume, f"{name}/{AFTER}", make, [options.measured_by, options.harden, victim, data])
