"""Grade models on benchmarks, without querying anything twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlab.benchmarking.answers import ANSWERS, Answers, Questions, count_rows
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.report import TABLES, BenchmarkReport, Figure
from rlab.benchmarking.scores import (
    Curve,
    area_row,
    curves_of,
    distance_rows,
    distortion_rows,
    level_rows,
    ranking,
)
from rlab.benchmarking.verify import GradedModel, load_victims
from rlab.errors import FolderError, OptionError
from rlab.progress import Progress, shown
from rlab.redact import spare
from rlab.storage.contents import Contents
from rlab.storage.lock import hold
from rlab.storage.resume import open_run


def run_benchmark(
    benchmarks: Sequence[Benchmark | str | Path],
    models: Mapping[str, GradedModel],
    *,
    fresh: bool = False,
    seed: int = 0,
    progress: Progress | bool = True,
) -> BenchmarkReport:
    """Query every model, loaded or by name, with every file, except where its answers are stored already.

    With `fresh`, models are queried again. `progress` is called with the rows that were graded; True shows a bar, False nothing.
    """
    if not benchmarks or not models:
        raise OptionError("expected at least one benchmark and one model to run on it")
    loaded = [item if isinstance(item, Benchmark) else Benchmark.load(item) for item in benchmarks]
    first, names = loaded[0], [benchmark.name for benchmark in loaded]
    for other in loaded[1:]:
        if 0 not in (both := {other.manifest.outputs, first.manifest.outputs}) and len(both) > 1:
            counts = f"has {first.manifest.outputs} classes and {other.folder} has {other.manifest.outputs}"
            raise FolderError(f"{first.folder} {counts}: run only benchmarks of the same task together")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FolderError(f"two benchmark folders have the same name {twice!r}: rename one")
    victims = load_victims(models, first)
    spare([*first.manifest.classes, *(row["id"] for benchmark in loaded for row in benchmark.rows)])
    known = {name: Contents.of(victim) for name, victim in victims.items()}
    made = [mark for benchmark in loaded for _, mark in benchmark.manifest.victims]
    marks = {name: contents.mark_among(made) for name, contents in known.items()}
    with ExitStack() as stack:
        questions = []
        for benchmark in loaded:
            stack.enter_context(hold(benchmark.folder, "benchmark run"))
            resume = stack.enter_context(open_run(benchmark.folder / ANSWERS, {"command": "benchmark run"}))
            questions.append(Questions(benchmark, resume, fresh))
        total = sum(map(count_rows, loaded)) * len(victims)
        advance = stack.enter_context(shown(progress, total, "grading", "inputs"))
        answers = {
            name: [each.query(name, victim, known[name], advance) for each in questions]
            for name, victim in victims.items()
        }
    return _report(loaded, answers, marks, seed)


def _report(
    benchmarks: Sequence[Benchmark], answers: Mapping[str, list[Answers]], fingerprints: Mapping[str, str], seed: int
) -> BenchmarkReport:
    curves, rows = list[Curve](), {name: list[Figure]() for name in TABLES.values()}
    by_curve = {model: list[Answers]() for model in answers}
    for number, benchmark in enumerate(benchmarks):
        for curve in curves_of(benchmark):
            curves.append(curve)
            for model, by_benchmark in answers.items():
                of_model = by_benchmark[number]
                by_curve[model].append(of_model)
                levels = level_rows(curve, of_model, seed)
                rows["levels"] += levels
                own = curve.against(fingerprints[model])  # the set was made against this model
                for row in levels:
                    about = {name: row[name] for name in ("set", "model", "level")} | {"own": own}
                    rows["transfer"].append(about | {"accuracy": row["accuracy_stored"], "samples": row["stored"]})
                rows["distortions"] += distortion_rows(benchmark, curve, of_model)
                rows["areas"].append(area_row(curve, of_model, seed))
                rows["curves"] += distance_rows(curve, of_model)
    queries = {model: sum(part.asked for part in by_benchmark) for model, by_benchmark in answers.items()}
    standings = tuple(ranking(curves, by_curve, fingerprints, seed))
    tables = {name: tuple(figures) for name, figures in rows.items()}
    return BenchmarkReport(tuple(answers), **tables, standings=standings, asked=queries, seed=seed)
