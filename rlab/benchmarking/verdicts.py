"""Requirements on a benchmark: what they name is checked before any query, and the figures of a report decide them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import BenchmarkReport
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.benchmarking.scores import GradedSet
from rlab.errors import OptionError
from rlab.stats import Estimate, share_estimate


def check_names(requirements: Sequence[Requirement], models: Sequence[str], benchmarks: Sequence[Benchmark]) -> None:
    """Refuse a requirement that these models and benchmarks cannot decide, before any query."""
    levels = [point for each in benchmarks for point in each.points]
    _refuse_unknown(requirements, models, levels, [name for each in benchmarks for name in main_distortions(each)])


def main_distortions(benchmark: Benchmark) -> list[str]:
    """The filters that are the main distortion of at least one file."""
    return list(dict.fromkeys(row["distortion"] for row in benchmark.rows if row["reached"] and row["victim"]))


def _refuse_unknown(
    requirements: Sequence[Requirement], models: Sequence[str], levels: Sequence[str], filters: Sequence[str]
) -> None:
    """Refuse a requirement that names something else; `filters` are the main distortions of files."""
    known = {"model": dict.fromkeys(models), "level": dict.fromkeys(levels), "distortion": dict.fromkeys(filters)}
    for requirement in requirements:
        if requirement.metric not in ("accuracy", "area", "flip_distance"):
            raise OptionError(f"a benchmark measures accuracy, area and flip_distance, not {requirement.metric}")
        for key, names in known.items():
            if (name := getattr(requirement, key)) not in (None, *names):
                listed = "; ".join(f"the {each}s are {', '.join(known[each]) or 'none'}" for each in known)
                meant = "main distortion" if key == "distortion" else key
                raise OptionError(f"the requirement names an unknown {meant} {name!r}: {listed}")


def measure_benchmark(report: BenchmarkReport, requirement: Requirement, model: str) -> list[Verdict]:
    """A verdict on the model for every set that has samples for the requirement."""
    verdicts = list[Verdict]()
    for graded in report.sets:
        measured, count = _measured(report, requirement, graded, model)
        if not math.isnan(measured.value):
            note = f"set {graded.name}{', made against this model' * (model in graded.own)}"
            named = requirement.model_copy(update={"model": model})
            verdicts.append(Verdict.of(named, measured, count, note))
    return verdicts


def _measured(report: BenchmarkReport, requirement: Requirement, graded: GradedSet, model: str) -> tuple[Estimate, int]:
    """The figure of a model on a set, and the number of samples that it is a share of."""
    area = graded.area(model, report.seed)
    if requirement.metric == "area":
        return Estimate(area["area"], area["low"], area["high"]), 0
    if requirement.metric == "flip_distance":
        return Estimate(area["flip_distance"]), area["samples"]
    narrow = {"level": requirement.level, "distortion": requirement.distortion}
    wanted = {key: value for key, value in narrow.items() if value is not None}
    rows = graded.by_distortion(model) if requirement.distortion else graded.by_level(model, report.seed)
    rows = [row for row in rows if all(row[key] == value for key, value in wanted.items()) and row["samples"]]
    count, most = sum(row["samples"] for row in rows), max((row["samples"] for row in rows), default=0)
    right = sum(row["accuracy"] * row["samples"] for row in rows)
    return share_estimate(right / count * most if count else 0.0, most), count  # a sample at several levels counts once


def check_requirements(report: BenchmarkReport, requirements: Sequence[Requirement]) -> list[Verdict]:
    """A verdict for every model and set that a requirement concerns.

    It is about these files only, so the figure decides without an interval. Whatever a requirement names must exist.
    """
    levels, filters = [row["level"] for row in report.levels], [row["distortion"] for row in report.distortions]
    _refuse_unknown(requirements, report.models, levels, filters)
    verdicts = list[Verdict]()
    for requirement in requirements:
        for model in [requirement.model] if requirement.model else report.models:
            named = requirement.model_copy(update={"model": model})
            unmeasured = Verdict(named, math.nan, note="no set has samples for it")  # does not pass
            found = measure_benchmark(report, requirement, model) or [unmeasured]
            verdicts += [replace(verdict, low=math.nan, high=math.nan) for verdict in found]
    return verdicts
