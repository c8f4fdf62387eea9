"""Requirements on a benchmark: what they name is checked before any query, and the figures of a report decide them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import BenchmarkReport
from rlab.benchmarking.requirements import Requirement, Verdict
from rlab.benchmarking.scores import curves_of
from rlab.errors import OptionError
from rlab.results.breakdown import entry_filters
from rlab.stats import Estimate, share_estimate


def check_names(requirements: Sequence[Requirement], models: Sequence[str], benchmarks: Sequence[Benchmark]) -> None:
    """Refuse a requirement that these models and benchmarks cannot decide, before any query."""
    levels = dict.fromkeys(point for each in benchmarks for curve in curves_of(each) for point in curve.points)
    filters = dict.fromkeys(name for each in benchmarks for name in main_distortions(each))
    palette = {name for each in benchmarks for name in entry_filters(each.manifest.entries)}
    _refuse_unknown(requirements, models, list(levels), list(filters), palette)


def main_distortions(benchmark: Benchmark) -> list[str]:
    """The filters that are the main distortion of at least one file."""
    return list(dict.fromkeys(row["distortion"] for row in benchmark.rows if row["reached"] and row["victim"]))


def _refuse_unknown(
    requirements: Sequence[Requirement],
    models: Sequence[str],
    levels: Sequence[str],
    filters: Sequence[str],
    palette: Collection[str] = (),
) -> None:
    """Refuse a requirement that names something else; `filters` are main distortions of files."""
    for requirement in requirements:
        if requirement.metric not in ("accuracy", "area", "flip_distance"):
            raise OptionError(f"a benchmark measures accuracy, area and flip_distance, not {requirement.metric}")
        if requirement.model not in (None, *models):
            named = f"the requirement names the model {requirement.model!r}"
            raise OptionError(f"{named}, but the models are {', '.join(models)}")
        for name, names in ((requirement.level, levels), (requirement.distortion, filters)):
            if name in (None, *names):
                continue
            if name in palette:
                found = f"the filter {name!r} is in the palette, but it is the main distortion of no file"
                raise OptionError(f"{found}: require one of {', '.join(filters) or 'the levels'}")
            listed = f"the levels are {', '.join(levels)}, the distortions are {', '.join(filters)}"
            raise OptionError(f"the requirement names an unknown level or distortion {name!r}: {listed}")


def measure_benchmark(report: BenchmarkReport, requirement: Requirement, model: str) -> list[Verdict]:
    """A verdict on the model for every set that has samples for the requirement."""
    key, verdicts = requirement.metric, list[Verdict]()
    own = {graded.name: [s.model for s in report.standings if graded.name in s.victim_of] for graded in report.sets}
    accuracies = report.levels if requirement.distortion is None else report.distortions
    wanted = {name: value for name, value in requirement.details.items() if name in ("level", "distortion")}
    for graded in report.sets:
        about = wanted | {"set": graded.name, "model": model}
        table = report.areas if key in ("area", "flip_distance") else accuracies
        rows = [row for row in table if all(row[name] == value for name, value in about.items())]
        weighted = [(row[key], row.get("samples", 1)) for row in rows if not math.isnan(row[key])]
        if count := sum(samples for _, samples in weighted):
            mean, named = sum(v * n for v, n in weighted) / count, requirement.model_copy(update={"model": model})
            note = f"set {graded.name}{', made against this model' * (model in own[graded.name])}"
            if key == "area":
                measured, count = Estimate(mean, rows[0]["low"], rows[0]["high"]), 0
            elif key == "flip_distance":
                measured = Estimate(mean)
            else:  # a sample at several levels counts once
                most = max(samples for _, samples in weighted)
                measured = share_estimate(mean * most, most)
            verdicts.append(Verdict.of(named, measured, count, note))
    return verdicts


def check_requirements(report: BenchmarkReport, requirements: Sequence[Requirement]) -> list[Verdict]:
    """A verdict for every model and set that a requirement concerns.

    It is about these files only, so the figure decides without an interval. Whatever a requirement names must exist.
    """
    levels = dict.fromkeys(row["level"] for row in report.levels)
    filters = dict.fromkeys(row["distortion"] for row in report.distortions)
    _refuse_unknown(requirements, report.models, list(levels), list(filters))
    verdicts = list[Verdict]()
    for requirement in requirements:
        for model in [requirement.model] if requirement.model else report.models:
            named = requirement.model_copy(update={"model": model})
            unmeasured = Verdict(named, math.nan, note="no set has samples for it")  # does not pass
            found = measure_benchmark(report, requirement, model) or [unmeasured]
            verdicts += [replace(verdict, low=math.nan, high=math.nan) for verdict in found]
    return verdicts
