"""What a model answers on a benchmark's files, kept so that nobody has to ask twice.

A model is known by its fingerprint, a benchmark by its hash: adding a model costs that model's rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.corruptions import apply, strength
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.ladder import ORIGINAL
from rlab.benchmarking.verify import check_outputs
from rlab.filters.base import Filter
from rlab.progress import Progress, quiet
from rlab.runs.resume import Resume
from rlab.victims.base import Victim

ANSWERS = Path("results", "answers")  # below the benchmark's folder
_CHUNK = 256
Key = tuple[str, str, int]  # set ('' for the originals), level, place
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Answers:
    """One model on one benchmark: class and probability of the true class for every file, and for uniform corruptions."""

    model: str
    predicted: Mapping[Key, int]
    probability: Mapping[Key, float]
    corruptions: Mapping[tuple[str, str, str], tuple[float, float, int]]  # set, level, name: accuracy, mean L2, samples
    asked: int  # rows that reached the model this time


@dataclass(frozen=True)
class Questions:
    """What models are asked of one benchmark. The originals are read once for all models, if at all; `fresh` asks again."""

    benchmark: Benchmark
    corruptions: tuple[Filter, ...] = ()
    fresh: bool = False

    @cached_property
    def resume(self) -> Resume:
        return Resume(self.benchmark.folder / ANSWERS, {"command": "benchmark run"})

    @cached_property
    def originals(self) -> dict[int, Tensor]:
        rows = self.benchmark.originals()
        return {row["place"]: x for row, x in zip(rows, self.benchmark.read(rows), strict=True)}

    @property
    def parts(self) -> dict[str, Sequence[Row]]:
        """Rows that are asked about and kept together, by name."""
        sets = {f"{victim}-{level}": rows for victim, level, rows in self.benchmark.sets()}
        return {ORIGINAL: self.benchmark.originals(), **sets}

    def ask(self, name: str, victim: Victim, fingerprint: str, progress: Progress = quiet) -> Answers:
        """Answers from the folder's results where the same model gave them before, from the model where not."""
        before = sum(victim.rows.values())
        predicted: dict[Key, int] = {}
        probability: dict[Key, float] = {}
        uniform: dict[tuple[str, str, str], tuple[float, float, int]] = {}
        for part, rows in self.parts.items():
            for row in self._kept(f"{fingerprint}/{part}", partial(_ask, self.benchmark, rows, name, victim)):
                at = (row["victim"], row["level"], row["place"])
                predicted[at], probability[at] = row["predicted"], row["probability"]
            progress(rows)
        for corruption in self.corruptions:
            key = f"{corruption.name} {corruption.severities}"
            strengths = self._kept(f"strengths/{key}", partial(self._strengths, corruption))
            ask = partial(self._ask_uniform, corruption, strengths, victim)
            for row in self._kept(f"{fingerprint}/uniform {key}", ask):
                uniform[row["victim"], row["level"], corruption.name] = row["accuracy"], row["l2"], row["samples"]
                progress(range(row["samples"]))
        return Answers(name, predicted, probability, uniform, sum(victim.rows.values()) - before)

    def _kept(self, key: str, make: Callable[[], Rows]) -> Rows:
        """The rows under this key, or made now; a step each, so that a stopped run has lost one part at most."""
        if self.fresh:
            rows = make()
            self.resume.record(key, self.benchmark.manifest.hash, rows)
            return rows
        return self.resume.step(key, self.benchmark.manifest.hash, make, stale="remake")

    def _strengths(self, corruption: Filter) -> Rows:
        """How strong it must be for the mean L2 of every set and level."""
        strengths = []
        for victim, level, rows in self.benchmark.sets():
            target, seeds = sum(row["l2"] for row in rows) / len(rows), [row["seed"] for row in rows]
            how = strength(self.benchmark, corruption, self._originals_of(rows), seeds, target)
            strengths.append({"victim": victim, "level": level, **asdict(how)})
        return strengths

    def _ask_uniform(self, corruption: Filter, strengths: Sequence[Row], victim: Victim) -> Rows:
        """Accuracy on every set's samples, each under the corruption as a whole; NaN where it cannot be so strong."""
        by_set, answers = {(row["victim"], row["level"]): row for row in strengths}, []
        for name, level, rows in self.benchmark.sets():
            how, accuracy = by_set[name, level], math.nan
            if how["near"]:
                seeds, labels = [row["seed"] for row in rows], torch.tensor([row["label"] for row in rows])
                x = apply(self.benchmark, corruption, self._originals_of(rows), seeds, how["severity"])
                predicted = [victim(some.to(victim.device), "verify").cpu().argmax(1) for some in x.split(_CHUNK)]
                accuracy = float((torch.cat(predicted) == labels).double().mean())
            figures = {"accuracy": accuracy, "l2": how["l2"], "samples": len(rows)}
            answers.append({"victim": name, "level": level, **figures})
        return answers

    def _originals_of(self, rows: Sequence[Row]) -> Tensor:
        return torch.stack([self.originals[row["place"]] for row in rows])


def _ask(benchmark: Benchmark, rows: Sequence[Row], name: str, victim: Victim) -> Rows:
    answers = []
    for at in range(0, len(rows), _CHUNK):
        some = rows[at : at + _CHUNK]
        scores = victim(benchmark.read(some).to(victim.device), "verify").cpu()
        check_outputs(benchmark, victim, f"the model {name!r}")
        for row, sure in zip(some, victim.probabilities(scores), strict=True):
            answer = {"predicted": int(sure.argmax()), "probability": float(sure[row["label"]])}
            answers.append({"victim": row["victim"], "level": row["level"], "place": row["place"], **answer})
    return answers


def count_rows(benchmark: Benchmark, corruptions: int = 0) -> int:
    """Inputs a model is asked about: files, and what so many corruptions make of the sets' samples."""
    stored = sum(len(rows) for *_, rows in benchmark.sets())
    return len(benchmark.originals()) + (1 + corruptions) * stored
