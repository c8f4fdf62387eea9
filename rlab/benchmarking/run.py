"""Grade models on benchmarks. Answers are stored by the model's fingerprint and the benchmark's hash, so none is paid twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from torch import Tensor

from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.formats import Row
from rlab.benchmarking.report import BenchmarkReport
from rlab.benchmarking.scores import GradedSet
from rlab.benchmarking.verify import CHUNK, GradedModel, answers_of, load_victims
from rlab.errors import FolderError, OptionError
from rlab.progress import Progress, shown
from rlab.redact import spare
from rlab.results.result import Status
from rlab.storage.contents import Contents
from rlab.storage.lock import hold
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim

ANSWERS = Path("results", "answers")  # below the benchmark's folder
Right = Callable[[Row], bool]  # whether a model classifies the file of a row correctly


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
    known = {name: Contents(victim) for name, victim in victims.items()}
    made = [mark for benchmark in loaded for _, mark in benchmark.manifest.victims]
    marks = {name: contents.mark_among(made) for name, contents in known.items()}
    before = {name: victim.rows.total() for name, victim in victims.items()}
    sets = list[GradedSet]()
    with ExitStack() as stack:
        total = sum(benchmark.queries for benchmark in loaded) * len(victims)
        advance = stack.enter_context(shown(progress, total, "grading", "inputs"))
        for benchmark in loaded:
            stack.enter_context(hold(benchmark.folder, "benchmark run"))
        for benchmark in loaded:
            with open_run(benchmark.folder / ANSWERS, {"command": "benchmark run"}) as resume:
                rights = {
                    name: _answers(benchmark, resume, name, victim, known[name], fresh, advance)
                    for name, victim in victims.items()
                }
            for against, mark in benchmark.manifest.victims:
                sets.append(graded_set(benchmark, against, [name for name in marks if marks[name] == mark], rights))
    asked = {name: victim.rows.total() - before[name] for name, victim in victims.items()}
    return BenchmarkReport(tuple(sets), asked, seed)


def _answers(
    benchmark: Benchmark, resume: Resume, name: str, victim: Victim, known: Contents, fresh: bool, progress: Progress
) -> Right:
    """Stored answers of the same model where there are some, otherwise (or if `fresh`) new ones."""
    mark = known.mark_among(key.partition("/")[0] for key in resume.finished())

    def query(rows: Sequence[Row]) -> list[int]:
        labels: list[int] = classes_of(answers_of(benchmark, name, victim, benchmark.read(rows))).tolist()
        return labels

    predicted, whole = dict[tuple[str, str, int], int](), benchmark.manifest.hash
    for against, level, rows in (("", ORIGINAL, benchmark.originals()), *benchmark.sets()):
        part = f"{against}-{level}" if against else level  # a stopped run loses one at most
        if fresh or (answered := resume.recall(f"{mark}/{part}", whole)) is None:
            answered = [label for at in range(0, len(rows), CHUNK) for label in query(rows[at : at + CHUNK])]
            mark = known.settled(mark)  # without what changes when the model is queried
            resume.record(f"{mark}/{part}", whole, answered)
        predicted |= {(against, level, row["place"]): label for row, label in zip(rows, answered, strict=True)}
        progress(rows)
    return lambda row: predicted[row["victim"], row["level"], row["place"]] == row["label"]


def classes_of(scores: Tensor) -> Tensor:
    """(b, k) -> (b,): the predicted class, or -1 where the model returned NaN."""
    return scores.argmax(1).masked_fill(scores.isnan().any(1), -1)


def graded_set(benchmark: Benchmark, victim: str, own: Sequence[str], rights: Mapping[str, Right]) -> GradedSet:
    """A set, the models that it was made against, and the answers of every model."""
    levels, originals = (ORIGINAL, *benchmark.levels), benchmark.originals()
    found = {(row["place"], row["level"]): row for row in benchmark.rows if row["victim"] in ("", victim)}
    files = [[found[original["place"], level] for level in levels] for original in originals]
    absolute = benchmark.ladder.absolute
    return GradedSet(
        name=f"{benchmark.name}/{victim}", own=tuple(own), levels=levels, points=benchmark.points, reach=benchmark.reach,
        scale=benchmark.scale, originals=tuple(row["sha256"] for row in originals),
        limits=tuple((absolute and row["level_value"]) or 0.0 for row in files[0]),
        tried=tuple(row[1]["status"] != Status.SKIPPED.value for row in files),
        l2=tuple(tuple(row["l2"] if row["reached"] else math.inf for row in line) for line in files),
        filters=tuple(tuple(row["distortion"] for row in line) for line in files),
        right={
            model: tuple(tuple(bool(row["reached"]) and right(row) for row in line) for line in files)
            for model, right in rights.items()
        },
    )  # fmt: skip
