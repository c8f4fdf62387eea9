"""Grade models on benchmarks. Answers are stored by the model's fingerprint and the benchmark's hash, so none is paid twice."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from rlab.benchmarking.chunk import Rows
from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.formats import Row
from rlab.benchmarking.report import BenchmarkReport
from rlab.benchmarking.scores import Grade, GradedSet
from rlab.benchmarking.verify import CHUNK, GradedModel, answers_of, check_outputs, load_victims
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
    sets, grades = list[GradedSet](), list[Grade]()
    with ExitStack() as stack:
        total = sum(benchmark.queries for benchmark in loaded) * len(victims)
        advance = stack.enter_context(shown(progress, total, "grading", "inputs"))
        for benchmark in loaded:
            stack.enter_context(hold(benchmark.folder, "benchmark run"))
        for benchmark in loaded:
            graded = [SetFiles.of(benchmark, name, mark) for name, mark in benchmark.manifest.victims]
            sets += [each.graded for each in graded]
            with open_run(benchmark.folder / ANSWERS, {"command": "benchmark run"}) as resume:
                for name, victim in victims.items():
                    right = _answers(benchmark, resume, name, victim, known[name], fresh, advance)
                    grades += [each.grade(name, right) for each in graded]
    asked = {name: victim.rows.total() - before[name] for name, victim in victims.items()}
    return BenchmarkReport(tuple(victims), tuple(sets), tuple(grades), marks, asked, seed)


def _answers(
    benchmark: Benchmark, resume: Resume, name: str, victim: Victim, known: Contents, fresh: bool, progress: Progress
) -> Right:
    """Stored answers of the same model where there are some, otherwise (or if `fresh`) new ones."""
    mark = known.mark_among(key.partition("/")[0] for key in resume.finished())
    answers, whole = Rows(), benchmark.manifest.hash
    sets = {f"{against}-{level}": rows for against, level, rows in benchmark.sets()}
    for part, rows in {ORIGINAL: benchmark.originals(), **sets}.items():  # a stopped run loses one at most
        if fresh or (answered := resume.recall(f"{mark}/{part}", whole)) is None:
            answered = _query(benchmark, rows, name, victim)
            mark = known.settled(mark)  # without what changes when the model is queried
            resume.record(f"{mark}/{part}", whole, answered)
        answers += answered
        progress(rows)
    predicted = {(row["victim"], row["level"], row["place"]): row["predicted"] for row in answers}
    return lambda row: predicted[row["victim"], row["level"], row["place"]] == row["label"]


def _query(benchmark: Benchmark, rows: Sequence[Row], name: str, victim: Victim) -> Rows:
    answers = Rows()
    for at in range(0, len(rows), CHUNK):
        some = rows[at : at + CHUNK]
        scores = answers_of(name, victim, benchmark.read(some))
        check_outputs(benchmark, victim, f"the model {name!r}")
        for row, chosen in zip(some, classes_of(scores).tolist(), strict=True):
            answers.append({key: row[key] for key in ("victim", "level", "place")} | {"predicted": chosen})
    return answers


def classes_of(scores: Tensor) -> Tensor:
    """(b, k) -> (b,): the predicted class, or -1 where the model returned NaN."""
    return scores.argmax(1).masked_fill(scores.isnan().any(1), -1)


@dataclass(frozen=True)
class SetFiles:
    """A set, and the files that decide a model's grade on it."""

    graded: GradedSet
    counts: tuple[tuple[Row, ...], ...]  # (tried, points): the file that counts
    every: tuple[tuple[Row, ...], ...]  # (originals,): all files of the sample, the original first

    @classmethod
    def of(cls, benchmark: Benchmark, victim: str, mark: str) -> SetFiles:
        points, absolute = benchmark.points, benchmark.ladder.absolute and not benchmark.free
        rows = {(row["place"], row["level"]): row for row in benchmark.rows if row["victim"] == victim}
        every = {row["place"]: [row] for row in benchmark.originals()}
        for row in rows.values():
            every[row["place"]] += [row] if row["reached"] else []
        tried = [row for row in benchmark.of(victim, benchmark.base_level) if row["status"] != Status.SKIPPED.value]
        counts = list[list[Row]]()
        for flip in tried:
            files = [original := every[flip["place"]][0]]
            for point in points[1:]:
                row = rows[flip["place"], point]
                near = not row["reached"] and absolute and files[-1] is original and flip["reached"]
                row = flip if near and flip["l2"] <= row["level_value"] else row  # the flip is below this level
                files.append(row if row["reached"] else files[-1])
            counts.append(files)
        stored = [[row["level"] == point for row, point in zip(files, points, strict=True)] for files in counts]
        graded = GradedSet(
            name=f"{benchmark.name}/{victim}", mark=mark, points=points, reach=benchmark.reach, scale=benchmark.scale,
            originals=tuple(files[0]["sha256"] for files in every.values()),
            tried=tuple(files[0]["sha256"] for files in counts),
            l2=tuple(tuple(row["l2"] for row in files) for files in counts), stored=tuple(map(tuple, stored)),
        )  # fmt: skip
        return cls(graded, tuple(map(tuple, counts)), tuple(map(tuple, every.values())))

    def grade(self, model: str, right: Right) -> Grade:
        distortions = defaultdict[tuple[str, str], list[bool]](list)
        for row in (row for files in self.every for row in files[1:]):
            distortions[row["distortion"], row["level"]].append(right(row))
        return Grade(
            self.graded.name, model, correct=tuple(tuple(map(right, files)) for files in self.counts),
            distances=tuple(min((r["l2"] for r in files if not right(r)), default=math.inf) for files in self.every),
            distortions=tuple((*key, len(each), sum(each)) for key, each in sorted(distortions.items())),
        )  # fmt: skip
