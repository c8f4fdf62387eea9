"""A whole hardening: train, measure before and after, write a page; or compare methods. The command and the audit run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rlab.data.batch import Batch
from rlab.hardening.comparison import (
    OURS,
    HardeningComparison,
    HardeningComparisonOptions,
    Splits,
    Tell,
    compare_hardening,
    parse_method,
)
from rlab.hardening.evaluation import (
    LEVELS,
    RobustnessMeasurement,
    all_filters,
    measure_before_after,
)
from rlab.hardening.options import EvaluationOptions, HardenOptions, HardenRunOptions
from rlab.hardening.pages import write_before_after
from rlab.hardening.run import Hardened, harden, refuse_shared
from rlab.hardening.trainable import goal_of, trainable
from rlab.hardening.trainer import FIRST, SHARES
from rlab.progress import Progress
from rlab.runs.inputs import relabelled
from rlab.runs.understood import Announce, Understood, say_nothing
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model

PAGE = "before-after.html"
_HELD_OUT = 5  # every fifth sample is held out if there are no test data


@dataclass(frozen=True)
class MeasuredHardening:
    """A hardened model, and its robustness 'before' and 'after'."""

    hardened: Hardened
    measured: Mapping[str, RobustnessMeasurement]

    @property
    def rows(self) -> int:
        """Inputs sent to the model and its copies, for training and measuring."""
        return self.hardened.rows + sum(self.hardened.measuring.values())


@dataclass(frozen=True)
class HardeningJob:
    """A model, data to train on, data to measure on, and the options of both."""

    victim: Victim
    train: Batch
    test: Batch
    options: HardenOptions
    evaluation: EvaluationOptions

    @classmethod
    def load(cls, options: HardenRunOptions, announce: Announce) -> HardeningJob:
        """Load the declared data and model; announces the samples and the defaults that were filled in."""
        options = options.model_copy(update={"data": options.suited_data()})
        batch = options.data.load()
        options, defaulted = options.filled(batch)
        victim = load_model(options.model, batch.bounds)
        batch = relabelled(batch, victim.own_classes)
        announce(Understood(batch, (victim,), defaulted))
        test = None if options.test is None else relabelled(options.test.load(), victim.own_classes)
        train, test = _split(batch, test)
        return cls(victim, train, test, options.harden.following(options), options.evaluation_options())

    def run(self, folder: Path, progress: Progress | bool = True) -> MeasuredHardening:
        """Harden, measure, and store the weights, the log and the page; the same call resumes a stopped run."""
        hardened = harden(self.victim, self.train, self.options, out=folder, progress=progress, announce=say_nothing)
        hardened.save(folder)
        measured = measure_before_after(hardened, self.test, self.evaluation, folder)
        hardened = replace(hardened, measuring={when: measurement.rows for when, measurement in measured.items()})
        hardened.save(folder)
        write_before_after(folder / PAGE, hardened, measured)
        return MeasuredHardening(hardened, measured)

    def compare(self, folder: Path, methods: Sequence[str], seeds: int, tell: Tell) -> HardeningComparison:
        """Harden with every method and seed, measure each model and store the figures; resumes a stopped run."""
        values = {"methods": methods, "seeds": range(seeds), "harden": self.options, "evaluation": self.evaluation}
        options = check(HardeningComparisonOptions, values)
        comparison = compare_hardening(self.victim, Splits(self.train, self.test), options, folder, tell)
        comparison.save(folder)
        return comparison

    def rows_at_most(self, methods: Sequence[str] = ()) -> dict[str, int | None]:
        """Queries by purpose; `methods` has one name per training of a comparison. None if unknown in advance."""
        goal = goal_of(trainable(self.victim, self.train))
        trained = [parse_method(name, self.options, self.train, goal) for name in methods or [OURS]]
        each = [
            training_rows(len(self.train), options, options.generator(self.train, goal).most)
            for options in trained
            if options is not None
        ]
        known = [rows for rows in each if rows is not None]
        rows: dict[str, int | None] = {"training": sum(known) if len(known) == len(each) else None}
        rows["measuring"] = (len(methods) or 2) * measuring_rows(self.test, self.evaluation)
        return rows


def _split(batch: Batch, test: Batch | None) -> tuple[Batch, Batch]:
    if test is not None:
        refuse_shared(batch, test, "test")
        return batch, test
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0)).tolist()
    count = max(2, len(batch) // _HELD_OUT)
    return batch[order[count:]], batch[order[:count]]


def training_rows(samples: int, options: HardenOptions, each: int | None) -> int | None:
    """Queries for attacks, training and validation; `each` is the adversary's maximum per sample, None if unknown."""
    if each is None:
        return None
    held = round(options.validation_split * samples)
    train = samples - held
    judged = min(held, options.validation_attacked) * (each + 1)
    batches = [min(options.training_batch, train - at) for at in range(0, train, options.training_batch)]
    harder = sum(max(1, round(options.adversarial_share * size)) for size in batches) * options.views
    passes = train * (2 if options.distillation_weight else 1) + harder
    epoch = passes + (len(SHARES) + 1) * held + judged
    return FIRST + 2 * held + judged + options.epochs * (epoch + harder * each)


def measuring_rows(test: Batch, options: EvaluationOptions) -> int:
    """Queries to one model: the declared attack, Square, PGD, and every filter at every level."""
    few = options.few(test)
    budget = options.attack.build(few).budget
    filters = len(all_filters(test.rank, test.x.shape[1]))
    queried = len(few) * (budget + options.square_budget + 1)  # + 1: the samples from the original model
    return queried + len(test) * (2 + options.pgd_steps + 1 + LEVELS * filters)
