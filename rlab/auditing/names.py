"""What requirements may name in an audit; whatever else they name is refused before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlab.auditing.config import AuditOptions
from rlab.benchmarking import parse_ladder
from rlab.benchmarking.ladder import ORIGINAL
from rlab.benchmarking.metrics import quantity
from rlab.benchmarking.requirements import Requirement
from rlab.core.breakdown import entry_filters
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation import parse_methods

NEED_TRUTH, NEED_CHECKS = ("dice", "iou", "pointing", "energy"), ("stability", "sanity")


def check_names(options: AuditOptions, batch: Batch, entries: Sequence[str]) -> None:
    """Refuses the first requirement that names what is not there; `entries` are those of the palette."""
    names = _names(options, batch, entries)
    for requirement in options.requirements:
        stage = requirement.figure.stage
        if stage not in ("audit", *options.stages):
            raise InputError(
                f"the requirement '{requirement}' is about the stage {stage!r}, which this audit leaves out: "
                f"declare the section '{stage}:' or drop the requirement"
            )
        for key, name in requirement.details.items():
            if key in names and name not in names[key]:
                listed = ", ".join(dict.fromkeys(names[key]))
                kind = "class, or one without samples," if key == "class" else key
                raise InputError(
                    f"the requirement '{requirement}' names an unknown {kind} {name!r}: there are {listed}"
                )
        _check_score(requirement, options, batch)
        _check_unit(requirement, batch)


def _names(options: AuditOptions, batch: Batch, entries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By key of a requirement: what it may be, in this audit and its data."""
    explain, benchmark, classes = options.explain, options.benchmark, class_indices(batch)
    return {
        "class": (*(batch.label_name(k) for k in classes), *map(str, classes)),
        "distortion": tuple(entry_filters(entries)),
        "level": (ORIGINAL, *parse_ladder(benchmark.ladder).names) if benchmark else (),
        "model": (options.own, *benchmark.models) if benchmark else (),
        "method": tuple(method.name for method in parse_methods(explain.methods)) if explain else (),
    }


def class_indices(batch: Batch) -> list[int]:
    """Classes that have samples."""
    if batch.y.shape[1:]:
        return [k for k in range(batch.y.shape[1]) if (batch.y[:, k] == 1).any()]
    return [int(k) for k in batch.y.unique()]


def _check_score(requirement: Requirement, options: AuditOptions, batch: Batch) -> None:
    why = ""
    if requirement.metric in NEED_TRUTH and batch.masks is None:
        why = "the data have no ground truth"
    if requirement.metric in NEED_CHECKS and not (options.explain and options.explain.checks):
        why = "explain.checks is off: set 'checks: true'"
    if why:
        raise InputError(f"the requirement '{requirement}' cannot be judged: {why}")


def _check_unit(requirement: Requirement, batch: Batch) -> None:
    """Distances count in the data's unit where the data have no bounds, else in shares of their range."""
    own = "" if math.isfinite(batch.bounds[1] - batch.bounds[0]) else batch.unit
    named = [requirement.unit, *(quantity(bound)[1] for bound in (requirement.at or {}).values())]
    for unit in named:
        if unit not in ("", "%", own) and unit.lower() != "db":
            raise InputError(
                f"the requirement '{requirement}' counts in {unit}, the data in {own or 'no unit'}: "
                f"leave the unit out or name the data's own"
            )
