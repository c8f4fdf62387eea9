"""What a model answers on a benchmark's files and under uniform corruptions, kept so that nobody has to ask twice.

A model is known by its fingerprint, a benchmark by its hash: adding a model costs that model's rows alone. A corruption is a
filter over the whole input, no agent, as strong as a level's mean L2.
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
from rlab.benchmarking.verify import CHUNK, check_outputs
from rlab.core.distances import l2
from rlab.errors import InputError
from rlab.filters.base import Filter
from rlab.filters.palette import Palette, Spec, bounded, by_gradient, unit_scale
from rlab.progress import Progress, quiet
from rlab.storage.resume import Resume
from rlab.victims.base import Victim

ANSWERS = Path("results", "answers")  # below the benchmark's folder
_HALVINGS = 24
_NEAR = 0.05  # by how much of the L2 asked for a corruption may miss it and still be compared
Key = tuple[str, str, int]  # set ('' for the originals), level, sample
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Answers:
    """One model on one benchmark: class and probability of the true class for every file, and for uniform corruptions."""

    model: str
    predicted: Mapping[Key, int]
    probability: Mapping[Key, float]
    corruptions: Rows  # victim, level, corruption: accuracy, mean L2, samples
    asked: int  # rows that reached the model this time


@dataclass(frozen=True)
class Questions:
    """What models are asked of one benchmark. The originals are read once for all models, if at all; `fresh` asks again."""

    benchmark: Benchmark
    resume: Resume
    corruptions: tuple[Filter, ...] = ()
    fresh: bool = False

    @cached_property
    def originals(self) -> dict[int, Tensor]:
        rows = self.benchmark.originals()
        return {row["place"]: x for row, x in zip(rows, self.benchmark.read(rows), strict=True)}

    def ask(self, name: str, victim: Victim, fingerprint: str, progress: Progress = quiet) -> Answers:
        """Answers from the folder's results where the same model gave them before, from the model where not."""
        before = sum(victim.rows.values())
        answers, uniform = Rows(), Rows()
        sets = {f"{made_against}-{level}": rows for made_against, level, rows in self.benchmark.sets()}
        for part, rows in {ORIGINAL: self.benchmark.originals(), **sets}.items():
            answers += self._kept(f"{fingerprint}/{part}", partial(_ask, self.benchmark, rows, name, victim))
            progress(rows)
        for corruption in self.corruptions:
            key = f"{corruption.name} {corruption.severities}"
            strengths = self._kept(f"strengths/{key}", partial(self._strengths, corruption))
            ask = partial(self._ask_uniform, corruption, strengths, victim)
            for row in self._kept(f"{fingerprint}/uniform {key}", ask):
                uniform.append({**row, "corruption": corruption.name})
                progress(range(row["samples"]))
        keys: list[Key] = [(row["victim"], row["level"], row["place"]) for row in answers]
        predicted, probability = (
            {key: row[column] for key, row in zip(keys, answers, strict=True)}
            for column in ("predicted", "probability")
        )
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
            strengths.append({"victim": victim, "level": level, **how})
        return strengths

    def _ask_uniform(self, corruption: Filter, strengths: Sequence[Row], victim: Victim) -> Rows:
        """Accuracy on every set's samples, each under the corruption as a whole; NaN where it cannot be so strong."""
        by_set, answers = {(row["victim"], row["level"]): row for row in strengths}, []
        for name, level, rows in self.benchmark.sets():
            how, accuracy = by_set[name, level], math.nan
            if how["near"]:
                seeds, labels = [row["seed"] for row in rows], torch.tensor([row["label"] for row in rows])
                x = apply(self.benchmark, corruption, self._originals_of(rows), seeds, how["severity"])
                predicted = [classes_of(victim(some.to(victim.device), "verify").cpu()) for some in x.split(CHUNK)]
                accuracy = float((torch.cat(predicted) == labels).double().mean())
            figures = {"accuracy": accuracy, "l2": how["l2"], "samples": len(rows)}
            answers.append({"victim": name, "level": level, **figures})
        return answers

    def _originals_of(self, rows: Sequence[Row]) -> Tensor:
        return torch.stack([self.originals[row["place"]] for row in rows])


def _ask(benchmark: Benchmark, rows: Sequence[Row], name: str, victim: Victim) -> Rows:
    answers = []
    for at in range(0, len(rows), CHUNK):
        some = rows[at : at + CHUNK]
        scores = victim(benchmark.read(some).to(victim.device), "verify").cpu()
        check_outputs(benchmark, victim, f"the model {name!r}")
        for row, sure, chosen in zip(some, victim.probabilities(scores), classes_of(scores).tolist(), strict=True):
            answer = {"predicted": chosen, "probability": float(sure[row["label"]].nan_to_num())}
            answers.append({"victim": row["victim"], "level": row["level"], "place": row["place"], **answer})
    return answers


def classes_of(scores: Tensor) -> Tensor:
    """(b, k) -> (b,): the class that wins; -1, which is no class, where the model answered NaN."""
    return scores.argmax(1).masked_fill(scores.isnan().any(1), -1)


def count_rows(benchmark: Benchmark, corruptions: int = 0) -> int:
    """Inputs a model is asked about: files, and what so many corruptions make of the sets' samples."""
    stored = sum(len(rows) for *_, rows in benchmark.sets())
    return len(benchmark.originals()) + (1 + corruptions) * stored


def foreign_filters(benchmark: Benchmark) -> list[str]:
    """Filters of its palette that are not built in: to run one is to run whatever code the folder names."""
    return [str(spec) for spec in benchmark.manifest.palette if ":" in str(spec)]


def corruptions_of(
    benchmark: Benchmark, wanted: Sequence[Spec] | bool = True, trust: bool = False
) -> tuple[Filter, ...]:
    """The filters named, True for the benchmark's own, False for none; each once. Of its own only those that are built in,
    unless the folder is trusted, and none that needs a surrogate: no folder brings one."""
    shape, own = benchmark.manifest.shape, benchmark.manifest.palette
    foreign = () if trust else foreign_filters(benchmark)
    names = [spec for spec in own if spec not in foreign and not by_gradient(spec)] if wanted is True else wanted
    if not names:
        return ()
    try:
        palette = Palette.of(names, len(shape.size), shape.channels, shape.rate, shape.unit)
    except InputError as error:
        raise InputError(f"cannot make the corruptions to compare with: {error}") from error
    return tuple({entry.filter.name: entry.filter for entry in palette.entries}.values())


def strength(
    benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], target: float
) -> dict[str, Any]:
    """The severity whose mean L2 over x0 (n, c, *size) comes nearest to `target`, that L2, and whether it is near enough;
    found by halving, no model is asked."""

    def reach(severity: float) -> float:
        try:
            return mean_l2(benchmark, x0, apply(benchmark, corruption, x0, seeds, severity))
        except (InputError, ValueError, RuntimeError):  # beyond what the filter can do
            return math.inf

    low, high = 0.0, corruption.severities[-1]
    while reach(high) < target and high < 64 * corruption.severities[-1]:
        low, high = high, 2 * high
    tries = dict[float, float]()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tries[middle] = reach(middle)
        if abs(tries[middle] - target) < 0.002 * target:
            break
        low, high = (middle, high) if tries[middle] < target else (low, middle)
    severity, far = min(tries.items(), key=lambda pair: abs(pair[1] - target))
    return {"severity": severity, "l2": far, "near": abs(far - target) <= _NEAR * target}


def apply(benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], severity: float) -> Tensor:
    """Each sample of x0 (n, c, *size) by its own seed, as the files would hold it."""
    bounds = benchmark.manifest.shape.bounds
    shift, scale = unit_scale(x0, bounds)
    unit = (x0 - shift) / scale
    rngs = (Generator().manual_seed(seed % 2**63) for seed in seeds)
    changed = torch.cat([corruption(row[None], severity, rng) for row, rng in zip(unit, rngs, strict=True)])
    return benchmark.format.stored((changed * scale + shift).clamp(*bounds))


def mean_l2(benchmark: Benchmark, x0: Tensor, x: Tensor) -> float:
    """In the unit of the metadata: of values in [0, 1] where there are bounds."""
    bounds = benchmark.manifest.shape.bounds
    return float(l2(x0, x).mean()) / (bounds[1] - bounds[0] if bounded(bounds) else 1.0)
