"""A model's answers on a benchmark's files and under uniform corruptions, stored so that no query is repeated.

Answers are stored by the model's fingerprint and the benchmark's hash, so adding a model costs only that model's queries. A
uniform corruption is a filter over the whole input, as strong as the mean L2 of a level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.placed import unit_span
from rlab.benchmarking.sample_files import Rows
from rlab.benchmarking.verify import CHUNK, answers_of, check_outputs
from rlab.core.distances import l2
from rlab.errors import InputError, OptionError
from rlab.filters.base import Filter
from rlab.filters.palette import Palette, Spec, by_gradient, unit_scale
from rlab.progress import Progress, quiet
from rlab.runs.palette_options import with_recordings
from rlab.storage.contents import Contents
from rlab.storage.resume import Resume
from rlab.victims.base import Victim

ANSWERS = Path("results", "answers")  # below the benchmark's folder
_HALVINGS = 24
_NEAR = 0.05  # maximum relative difference between a corruption's L2 and the target
Key = tuple[str, str, int]  # set ('' for originals), level, sample


@dataclass(frozen=True)
class Answers:
    """One model on one benchmark: the predicted class of every file, and corruption rows."""

    model: str
    predicted: Mapping[Key, int]
    corruptions: Rows  # victim, level, corruption: accuracy, mean L2, samples
    asked: int  # queries sent to the model in this run


@dataclass(frozen=True)
class Questions:
    """The queries of one benchmark to any model; `fresh` repeats queries whose answers are stored."""

    benchmark: Benchmark
    resume: Resume
    corruptions: tuple[Filter, ...] = ()
    fresh: bool = False

    @cached_property
    def originals(self) -> dict[int, Tensor]:
        rows = self.benchmark.originals()
        return {row["place"]: x for row, x in zip(rows, self.benchmark.read(rows), strict=True)}

    def query(self, name: str, victim: Victim, known: Contents, progress: Progress = quiet) -> Answers:
        """Stored answers of the same model where there are some, otherwise new ones."""
        before = sum(victim.rows.values())
        mark = known.mark_among(key.partition("/")[0] for key in self.resume.finished())

        def kept(part: str, make: Callable[[], Rows]) -> Rows:
            nonlocal mark
            if self.fresh or (rows := self._recall(f"{mark}/{part}")) is None:
                rows = make()
                mark = known.settled(mark)  # without what changes when the model is queried
                self.resume.record(f"{mark}/{part}", self.benchmark.manifest.hash, rows)
            return rows

        answers, uniform = Rows(), Rows()
        sets = {f"{against}-{level}": rows for against, level, rows in self.benchmark.sets()}
        for part, rows in {ORIGINAL: self.benchmark.originals(), **sets}.items():
            answers += kept(part, partial(_query, self.benchmark, rows, name, victim))
            progress(rows)
        for corruption in self.corruptions:
            key = f"{corruption.name} {corruption.severities}"
            if self.fresh or (strengths := self._recall(f"strengths/{key}")) is None:
                strengths = self._strengths(corruption)
                self.resume.record(f"strengths/{key}", self.benchmark.manifest.hash, strengths)
            query = partial(self._query_uniform, corruption, strengths, name, victim)
            for row in kept(f"uniform {key}", query):
                uniform.append({**row, "corruption": corruption.name})
                progress(range(row["samples"]))
        predicted = {(row["victim"], row["level"], row["place"]): row["predicted"] for row in answers}
        return Answers(name, predicted, uniform, sum(victim.rows.values()) - before)

    def _recall(self, key: str) -> Rows | None:
        """The stored rows of this key; each is one step, so a stopped run loses one at most."""
        rows: Rows | None = self.resume.recall(key, self.benchmark.manifest.hash)
        return rows

    def _strengths(self, corruption: Filter) -> Rows:
        """The strength that gives the mean L2 of each set and level."""
        strengths = []
        for victim, level, rows in self.benchmark.sets():
            target, seeds = sum(row["l2"] for row in rows) / len(rows), [row["seed"] for row in rows]
            how = strength(self.benchmark, corruption, self._originals_of(rows), seeds, target)
            strengths.append({"victim": victim, "level": level, **how})
        return strengths

    def _query_uniform(self, corruption: Filter, strengths: Sequence[Row], model: str, victim: Victim) -> Rows:
        """Accuracy on every set's samples under the corruption; NaN where it cannot reach the set's mean L2."""
        by_set, answers = {(row["victim"], row["level"]): row for row in strengths}, []
        for name, level, rows in self.benchmark.sets():
            how, accuracy = by_set[name, level], math.nan
            if how["near"]:
                seeds, labels = [row["seed"] for row in rows], torch.tensor([row["label"] for row in rows])
                x = apply(self.benchmark, corruption, self._originals_of(rows), seeds, how["severity"])
                predicted = [classes_of(answers_of(model, victim, some)) for some in x.split(CHUNK)]
                accuracy = float((torch.cat(predicted) == labels).double().mean())
            figures = {"accuracy": accuracy, "l2": how["l2"], "samples": len(rows)}
            answers.append({"victim": name, "level": level, **figures})
        return answers

    def _originals_of(self, rows: Sequence[Row]) -> Tensor:
        return torch.stack([self.originals[row["place"]] for row in rows])


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


def count_rows(benchmark: Benchmark, corruptions: int = 0) -> int:
    """Number of queries per model: one per file, and one per sample of a set and corruption."""
    stored = sum(len(rows) for *_, rows in benchmark.sets())
    return len(benchmark.originals()) + (1 + corruptions) * stored


def foreign_filters(benchmark: Benchmark) -> list[str]:
    """Filters of the palette that are not built in: running them runs code that the folder names."""
    return [str(spec) for spec in benchmark.manifest.palette if ":" in str(spec)]


def corruptions_of(
    benchmark: Benchmark, chosen: Sequence[Spec] | bool = True, trust: bool = False
) -> tuple[Filter, ...]:
    """The filters to compare with, each once: those named, or True for the benchmark's own.

    Filters that are not built in are left out unless you trust the folder, and those that need a surrogate always are.
    """
    shape, own = benchmark.manifest.shape, benchmark.manifest.palette
    foreign = () if trust else foreign_filters(benchmark)
    names = [spec for spec in own if spec not in foreign and not by_gradient(spec)] if chosen is True else chosen
    if not names:
        return ()
    try:
        single, own_filters = with_recordings(names, shape.rate)
        palette = Palette.of(single, len(shape.size), shape.channels, shape.rate, shape.unit, own_filters)
    except InputError as error:
        raise OptionError(f"cannot build the corruptions to compare with: {error}") from error
    return tuple({entry.filter.name: entry.filter for entry in palette.entries}.values())


def strength(
    benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], target: float
) -> dict[str, Any]:
    """Find by bisection the severity whose mean L2 over x0 (n, c, *size) is nearest to `target`; queries no model."""
    span = unit_span(benchmark.manifest.shape.bounds)  # as in the metadata

    def reach(severity: float) -> float:
        try:
            return float(l2(x0, apply(benchmark, corruption, x0, seeds, severity)).mean()) / span
        except (ValueError, RuntimeError):  # more than the filter can do
            return math.inf

    low, high = 0.0, corruption.severities[-1]
    tries = {level: reach(level) for level in corruption.severities if corruption.levels}
    while not tries and reach(high) < target and high < 64 * corruption.severities[-1]:
        low, high = high, 2 * high
    for _ in range(0 if tries else _HALVINGS):
        middle = (low + high) / 2
        tries[middle] = reach(middle)
        if abs(tries[middle] - target) < 0.002 * target:
            break
        low, high = (middle, high) if tries[middle] < target else (low, middle)
    severity, far = min(tries.items(), key=lambda pair: abs(pair[1] - target))
    return {"severity": severity, "l2": far, "near": abs(far - target) <= _NEAR * target}


def apply(benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], severity: float) -> Tensor:
    """Corrupt each sample of x0 (n, c, *size) with its own seed, rounded as a file would round it."""
    bounds = benchmark.manifest.shape.bounds
    shift, scale = unit_scale(x0, bounds)
    unit = (x0 - shift) / scale
    rngs = (Generator().manual_seed(seed % 2**63) for seed in seeds)
    changed = torch.cat([corruption(row[None], severity, rng) for row, rng in zip(unit, rngs, strict=True)])
    return benchmark.format.stored((changed * scale + shift).clamp(*bounds))
