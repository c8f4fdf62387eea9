"""What requirements may name in this audit; whatever else they name is refused before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlab.auditing.config import AuditConfig
from rlab.auditing.requirements import Rule
from rlab.benchmarking import parse_ladder
from rlab.benchmarking.ladder import ORIGINAL
from rlab.core.breakdown import entry_filters
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation import parse_methods
from rlab.filters.palette import Palette

NEED_TRUTH, NEED_CHECKS = ("dice", "iou", "pointing", "energy"), ("stability", "sanity")


@dataclass(frozen=True)
class Known:
    """Names by kind, of an audit and its data."""

    stages: tuple[str, ...]
    filters: tuple[str, ...]
    classes: tuple[str, ...]  # that have samples, by name
    indices: tuple[str, ...]  # the same by number
    levels: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    scores: tuple[str, ...]
    unit: str

    @classmethod
    def of(cls, config: AuditConfig, batch: Batch) -> Known:
        run, _ = config.run_config().filled(batch)
        entries = Palette.of(run.palette or [], batch.rank, batch.x.shape[1], batch.rate, batch.unit)
        explain, graded = config.explain, config.benchmark
        left_out = (
            *(() if batch.masks is not None else NEED_TRUTH),
            *(() if explain and explain.checks else NEED_CHECKS),
        )
        every = (*NEED_TRUTH, "deletion", "insertion", *NEED_CHECKS)
        return cls(
            stages=stages_of(config),
            filters=tuple(entry_filters(entries.names)),
            classes=tuple(batch.label_name(k) for k in class_indices(batch)),
            indices=tuple(map(str, class_indices(batch))),
            levels=(ORIGINAL, *parse_ladder(graded.ladder).names) if graded else (),
            models=(config.own, *graded.models) if graded else (),
            methods=tuple(one.name for one in parse_methods(explain.methods)) if explain else (),
            scores=tuple(name for name in every if name not in left_out),
            unit=batch.unit if not math.isfinite(batch.bounds[1] - batch.bounds[0]) else "",
        )


def stages_of(config: AuditConfig) -> tuple[str, ...]:
    """Those that will run, in order."""
    optional = {
        "doctor": config.doctor,
        "explain": config.explain,
        "benchmark": config.benchmark,
        "harden": config.harden,
    }
    order = ("doctor", "attack", "explain", "benchmark", "harden")
    return tuple(name for name in order if optional.get(name, True) is not None)


def class_indices(batch: Batch) -> list[int]:
    """Classes that have samples."""
    if batch.y.shape[1:]:
        return [k for k in range(batch.y.shape[1]) if (batch.y[:, k] == 1).any()]
    return [int(k) for k in batch.y.unique()]


def check_rules(rules: Sequence[Rule], known: Known) -> None:
    """Refuses the first requirement that names what is not there."""
    for rule in rules:
        stage = rule.figure.stage
        if stage != "audit" and stage not in known.stages:
            raise InputError(
                f"the requirement {rule.text!r} is about the stage {stage!r}, which this audit leaves out: "
                f"declare the section '{stage}:' or drop the requirement"
            )
        if rule.classed not in known.indices:
            _one_of(rule, "class, or one without samples,", rule.classed, known.classes)
        _one_of(rule, "distortion", rule.distortion, known.filters)
        if stage == "benchmark":
            _one_of(rule, "level or distortion", rule.what, (*known.levels, *known.filters))
            _one_of(rule, "model", rule.named, known.models)
        if stage == "explain":
            _one_of(rule, "method", rule.named, known.methods)
            _check_score(rule, known)
        if rule.unit and rule.unit != known.unit:
            raise InputError(
                f"the requirement {rule.text!r} counts in {rule.unit}, the data in {known.unit or 'no unit'}: "
                f"leave the unit out or name the data's own"
            )


def _one_of(rule: Rule, kind: str, said: str, names: tuple[str, ...]) -> None:
    if said and said.lower() not in [name.lower() for name in names]:
        raise InputError(
            f"the requirement {rule.text!r} names an unknown {kind} {said!r}: there are {', '.join(names)}"
        )


def _check_score(rule: Rule, known: Known) -> None:
    key = rule.figure.key
    if key not in known.scores:
        why = "the data have no ground truth" if key in NEED_TRUTH else "explain.checks is off: set 'checks: true'"
        raise InputError(f"the requirement {rule.text!r} cannot be judged: {why}")
