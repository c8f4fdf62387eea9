"""A model's answers on a benchmark's files, stored so that no query is repeated.

Answers are stored by the model's fingerprint and the benchmark's hash, so adding a model costs only that model's queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from rlab.benchmarking.chunk import Rows
from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.verify import CHUNK, answers_of, check_outputs
from rlab.progress import Progress, quiet
from rlab.storage.contents import Contents
from rlab.storage.resume import Resume
from rlab.victims.base import Victim

ANSWERS = Path("results", "answers")  # below the benchmark's folder
Key = tuple[str, str, int]  # set ('' for originals), level, sample


@dataclass(frozen=True)
class Answers:
    """One model on one benchmark: the predicted class of every file."""

    model: str
    predicted: Mapping[Key, int]
    asked: int  # queries sent to the model in this run


@dataclass(frozen=True)
class Questions:
    """The queries of one benchmark to any model; `fresh` repeats queries whose answers are stored."""

    benchmark: Benchmark
    resume: Resume
    fresh: bool = False

    def query(self, name: str, victim: Victim, known: Contents, progress: Progress = quiet) -> Answers:
        """Stored answers of the same model where there are some, otherwise new ones."""
        before = sum(victim.rows.values())
        mark = known.mark_among(key.partition("/")[0] for key in self.resume.finished())
        answers, whole = Rows(), self.benchmark.manifest.hash
        sets = {f"{against}-{level}": rows for against, level, rows in self.benchmark.sets()}
        for part, rows in {ORIGINAL: self.benchmark.originals(), **sets}.items():  # a stopped run loses one at most
            if self.fresh or (answered := self.resume.recall(f"{mark}/{part}", whole)) is None:
                answered = _query(self.benchmark, rows, name, victim)
                mark = known.settled(mark)  # without what changes when the model is queried
                self.resume.record(f"{mark}/{part}", whole, answered)
            answers += answered
            progress(rows)
        predicted = {(row["victim"], row["level"], row["place"]): row["predicted"] for row in answers}
        return Answers(name, predicted, sum(victim.rows.values()) - before)


def _query(benchmark: Benchmark, rows: Sequence[Row], name: str, victim: Victim) -> Rows:
    answers = []
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


def count_rows(benchmark: Benchmark) -> int:
    """Number of queries per model: one per file."""
    return len(benchmark.originals()) + sum(len(rows) for *_, rows in benchmark.sets())
