"""What a model answers on a benchmark's files, kept so that nobody has to ask twice.

A model is known by its mark (`model_mark`), a benchmark by its hash: adding a model costs that model's rows alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.corruptions import Corruption, apply, strength
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.ladder import ORIGINAL
from rlab.benchmarking.verify import check_outputs
from rlab.progress import Progress, quiet
from rlab.runs import files
from rlab.victims.base import Victim

RESULTS = "results"
_CHUNK = 256
Key = tuple[str, str, int]  # set ('' for the originals), level, place


@dataclass(frozen=True)
class Answers:
    """One model on one benchmark: class and probability of the true class for every file, and for uniform corruptions."""

    model: str
    predicted: Mapping[Key, int]
    probability: Mapping[Key, float]
    corruptions: Mapping[tuple[str, str, str], tuple[float, float, int]]  # set, level, name: accuracy, mean L2, samples
    asked: int  # rows that reached the model this time


def ask_model(
    benchmark: Benchmark,
    name: str,
    victim: Victim,
    mark: str,
    uniform: Uniform,
    fresh: bool = False,
    progress: Progress = quiet,
) -> Answers:
    """Answers from the folder's results where the same model gave them before, from the model where not."""
    before = sum(victim.rows.values())
    predicted: dict[Key, int] = {}
    probability: dict[Key, float] = {}
    found: dict[tuple[str, str, str], tuple[float, float, int]] = {}
    for part in _parts(benchmark):
        for row in _kept(benchmark, mark, part.name, fresh, partial(_ask, benchmark, part, name, victim)):
            key = (row["victim"], row["level"], row["place"])
            predicted[key], probability[key] = row["predicted"], row["probability"]
        progress(part.rows)
    for one in uniform.corruptions:
        file = f"uniform-{hashlib.sha256(one.key.encode()).hexdigest()[:12]}"
        how = _kept(benchmark, "strengths", file, fresh, partial(_strengths, uniform, one))
        for row in _kept(benchmark, mark, file, fresh, partial(_ask_uniform, uniform, one, how, victim)):
            found[row["victim"], row["level"], one.name] = row["accuracy"], row["l2"], row["samples"]
            progress(range(row["samples"]))
    return Answers(name, predicted, probability, found, sum(victim.rows.values()) - before)


@dataclass(frozen=True)
class Uniform:
    """What a benchmark's samples are corrupted with; the originals are read once for all models, if at all."""

    benchmark: Benchmark
    corruptions: tuple[Corruption, ...] = ()

    @cached_property
    def originals(self) -> dict[int, Tensor]:
        rows = self.benchmark.originals()
        return {row["place"]: x for row, x in zip(rows, self.benchmark.read(rows), strict=True)}

    def of(self, rows: Sequence[Row]) -> Tensor:
        return torch.stack([self.originals[row["place"]] for row in rows])


@dataclass(frozen=True)
class _Part:
    """Rows that are asked about and kept together."""

    name: str
    rows: Sequence[Row]


def _parts(benchmark: Benchmark) -> list[_Part]:
    sets = [_Part(f"{name}-{level}", rows) for name, level, rows in _sets(benchmark)]
    return [_Part(ORIGINAL, benchmark.originals()), *sets]


def _kept(
    benchmark: Benchmark, mark: str, name: str, fresh: bool, make: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The rows under this name, or made now; a file for each, so that a stopped run has lost one part at most."""
    path = benchmark.folder / RESULTS / benchmark.manifest.hash[:16] / mark / f"{name}.parquet"
    if path.exists() and not fresh:
        return files.read_rows(path)
    rows = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_rows(path, rows, "")
    return rows


def _ask(benchmark: Benchmark, part: _Part, name: str, victim: Victim) -> list[dict[str, Any]]:
    made = []
    for at in range(0, len(part.rows), _CHUNK):
        rows = part.rows[at : at + _CHUNK]
        scores = victim(benchmark.read(rows).to(victim.device), "verify").cpu()
        check_outputs(benchmark, victim, f"the model {name!r}")
        sure = victim.probabilities(scores)
        for row, one in zip(rows, sure, strict=True):
            said = {"predicted": int(one.argmax()), "probability": float(one[row["label"]])}
            made.append({"victim": row["victim"], "level": row["level"], "place": row["place"], **said})
    return made


def _strengths(uniform: Uniform, one: Corruption) -> list[dict[str, Any]]:
    """How strong it must be for the mean L2 of every set and level."""
    made = []
    for name, level, rows in _sets(uniform.benchmark):
        x0, target = uniform.of(rows), sum(row["l2"] for row in rows) / len(rows)
        found = strength(uniform.benchmark, one, x0, [row["seed"] for row in rows], target)
        made.append({"victim": name, "level": level, "severity": found.severity, "l2": found.l2, "near": found.near})
    return made


def _ask_uniform(uniform: Uniform, one: Corruption, strengths: Sequence[Row], victim: Victim) -> list[dict[str, Any]]:
    """Accuracy on every set's samples, each under the corruption as a whole; NaN where it cannot be so strong."""
    severity = {(row["victim"], row["level"]): row for row in strengths}
    made = []
    for name, level, rows in _sets(uniform.benchmark):
        how, right = severity[name, level], math.nan
        if how["near"]:
            x = apply(uniform.benchmark, one, uniform.of(rows), [row["seed"] for row in rows], how["severity"])
            right = float(_right(victim, x, torch.tensor([row["label"] for row in rows])).double().mean())
        made.append({"victim": name, "level": level, "accuracy": right, "l2": how["l2"], "samples": len(rows)})
    return made


def _sets(benchmark: Benchmark) -> Iterator[tuple[str, str, list[Row]]]:
    for name in benchmark.victims:
        for level in benchmark.ladder.names:
            if rows := [row for row in benchmark.of(name, level) if row["reached"]]:
                yield name, level, rows


def _right(victim: Victim, x: Tensor, labels: Tensor) -> Tensor:
    parts = [victim(some.to(victim.device), "verify").cpu().argmax(1) for some in x.split(_CHUNK)]
    return torch.cat(parts) == labels


def count_rows(benchmark: Benchmark, corruptions: int = 0) -> int:
    """Inputs a model is asked about: files, and what so many corruptions make of the sets' samples."""
    files = sum(len(part.rows) for part in _parts(benchmark))
    return files + corruptions * (files - len(benchmark.originals()))
