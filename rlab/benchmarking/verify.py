"""Verify every file: its hash, its distance from the stored original, and that its victim errs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.formats import Row
from rlab.core.distances import measure
from rlab.errors import InputError, ModelError, OptionError, VictimError
from rlab.present.page import Banner, Block, Number, Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Table
from rlab.progress import Progress, shown
from rlab.storage.config import check
from rlab.storage.outside import short
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

GradedModel = Victim | ModelOptions | str | Mapping[str, Any]  # a loaded model, or how to load it
Pair = tuple[Row, Tensor]  # a row and the values (c, *size) of its file
CHUNK = 256  # files read and queried at once
_ROUNDING = 1e-4  # relative; other hardware sums in another order
_SHOWN = 100  # mismatches on a page


@dataclass(frozen=True)
class Mismatch:
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class CheckedLevel:
    """The files of one level of a set."""

    set: str  # empty for the originals
    level: str
    files: int
    queries: int
    mismatches: tuple[Mismatch, ...] = ()

    @property
    def wrong(self) -> int:
        """Files with a mismatch; one file can have several."""
        return len({mismatch.file for mismatch in self.mismatches})


@dataclass(frozen=True)
class Verification(Report):
    """The number of files checked, and every mismatch."""

    verb: ClassVar[str] = "benchmark verify"
    levels: tuple[CheckedLevel, ...]  # the originals first
    unasked: tuple[str, ...] = ()  # victims that you did not pass

    @property
    def files(self) -> int:
        return sum(level.files for level in self.levels)

    @property
    def asked(self) -> int:
        """Queries sent to models."""
        return sum(level.queries for level in self.levels)

    @property
    def mismatches(self) -> tuple[Mismatch, ...]:
        return tuple(mismatch for level in self.levels for mismatch in level.mismatches)

    @property
    def holds(self) -> bool:
        return not self.mismatches

    def __str__(self) -> str:
        queries = f" with {self.asked} queries to their victims" if self.asked else ""
        outcome = "all checks passed" if self.holds else f"{len(self.mismatches)} checks failed"
        without = f"; without a query to {', '.join(self.unasked)}" if self.unasked else ""
        return f"{self.files} files checked{queries}: {outcome}{without}"

    def records(self) -> list[dict[str, Any]]:
        """One row per set and level: the number of files, of those with a mismatch, and of queries."""
        return [
            {"set": each.set, "level": each.level, "files": each.files, "wrong": each.wrong, "queries": each.queries}
            for each in self.levels
        ]

    def metrics(self) -> Mapping[str, Metric]:
        return {"mismatches": len(self.mismatches), "files": self.files, "queries": self.asked}

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        head = ["set", "level", "files", "with a mismatch", "queries"]
        blocks: list[Block] = [Table(head, [list(row.values()) for row in self.records()], words=2)]
        if self.mismatches:
            wrong = [[each.file, each.what] for each in self.mismatches]
            blocks.append(Table(["file", "what differs"], wrong, "Mismatches", words=2).first(_SHOWN))
        if self.unasked:
            blocks.append(Text(f"Not queried: {', '.join(self.unasked)}. Pass them to check that they still err."))
        numbers = [Number("files", self.files), Number("queries", self.asked)]
        title = f"Benchmark verified{'' if folder is None else f': {folder.name}'}"
        return Page(title, [Section("Files", blocks)], Banner(self.holds, str(self)), numbers=numbers)


def load_victims(models: Mapping[str, GradedModel], benchmark: Benchmark) -> dict[str, Victim]:
    """All models, those given by name loaded for inputs like the benchmark's."""
    victims = dict[str, Victim]()
    for name, model in models.items():
        if isinstance(model, Victim):
            victims[name] = model
        else:
            if not isinstance(model, ModelOptions):
                fields = {"name": model} if isinstance(model, str) else model
                model = check(ModelOptions, fields, f"the model {name!r}")
            victims[name] = load_model(model, benchmark.manifest.shape.bounds)
        own, known = victims[name].own_classes, benchmark.manifest.classes
        if own != known and sorted(own) == sorted(known):
            order = short(", ".join(known))
            raise ModelError(f"the model {name!r} lists the benchmark's classes in another order: list them as {order}")
    return victims


def verify_benchmark(
    benchmark: Benchmark | str | Path,
    victims: Mapping[str, GradedModel] | None = None,
    progress: Progress | bool = True,
    trust: bool = False,
) -> Verification:
    """Check all files; pass models by their names in the benchmark to check that they still err.

    With `trust`, the models that the folder itself names are loaded too. `progress` is called with the files that were checked;
    True shows a bar, False nothing.
    """
    whole = benchmark if isinstance(benchmark, Benchmark) else Benchmark.load(benchmark)
    named = (whole.named_models if trust else {}) | dict(victims or {})
    if trust and not named:
        raise OptionError(f"{whole.folder} does not say how to load its models: pass --model NAME=MODEL")
    models = load_victims(named, whole)
    if strange := [name for name in models if name not in whole.models]:
        names = f"its victims are {', '.join(whole.models)}" if whole.models else "it was made without a model"
        raise OptionError(f"{whole.folder} was not made against {strange[0]!r}: {names}")
    with shown(progress, whole.queries, "verifying", "files") as advance:
        levels = _check(whole, models, advance)
    return Verification(tuple(levels), tuple(name for name in whole.models if name not in models))


def _check(whole: Benchmark, models: Mapping[str, Victim], progress: Progress) -> list[CheckedLevel]:
    """Check the originals, then every level of every set."""
    originals, levels = dict[int, Tensor](), list[CheckedLevel]()
    for victim, level, rows in (("", ORIGINAL, whole.originals()), *whole.sets()):
        model, mismatches = models.get(victim), list[Mismatch]()
        before = model.rows.total() if model else 0
        for some in (rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)):
            pairs = list[Pair]()
            for row, values in whole.each(some):
                if isinstance(values, str):
                    name = row["file"] if row["row"] is None else f"{row['file']} row {row['row']}"
                    mismatches.append(Mismatch(name, values))
                else:
                    pairs.append((row, values))
            if level == ORIGINAL:
                originals |= {row["place"]: x for row, x in pairs}
            mismatches += _wrong_distances(whole, pairs, originals)
            if model is not None and pairs:
                mismatches += _correct_answers(whole, pairs, victim, model)
            progress(some)
        queries = model.rows.total() - before if model else 0
        levels.append(CheckedLevel(victim, level, len(rows), queries, tuple(mismatches)))
    return levels


def _wrong_distances(whole: Benchmark, pairs: list[Pair], originals: Mapping[int, Tensor]) -> list[Mismatch]:
    pairs = [(row, x) for row, x in pairs if row["place"] in originals and row["assignment"]]
    if not pairs:  # originals, or the originals are mismatches
        return []
    x0 = torch.stack([originals[row["place"]] for row, _ in pairs])
    assignment = torch.tensor([row["assignment"] for row, _ in pairs])
    distances = measure(x0, torch.stack([x for _, x in pairs]), assignment, whole.manifest.shape.bounds)
    wrong = []
    for name in ("l2", "linf", "l0_values"):
        for (row, _), is_now in zip(pairs, distances[name].tolist(), strict=True):
            stated = float(row[name])
            if not abs(stated - is_now) <= _ROUNDING * max(abs(stated), 1e-6):
                wrong.append(Mismatch(row["file"], f"its {name} is {is_now:.6g}, but the metadata say {stated:.6g}"))
    return wrong


def _correct_answers(whole: Benchmark, pairs: list[Pair], name: str, victim: Victim) -> list[Mismatch]:
    """Files on which the victim is right; one query each."""
    scores = answers_of(whole, name, victim, torch.stack([x for _, x in pairs]))
    errs = whole.goal.reached(scores, torch.tensor([row["label"] for row, _ in pairs])).tolist()
    words = f"its victim {name} does not err on it"
    return [Mismatch(row["file"], words) for (row, _), err in zip(pairs, errs, strict=True) if not err]


def answers_of(whole: Benchmark, name: str, victim: Victim, x: Tensor) -> Tensor:
    """The scores (b, k) for x (b, c, *size); an error names the model, since there may be several.

    A model with other classes is refused after its first answer; a set without a model may not know how many there are.
    """
    try:
        scores = victim(x.to(victim.device), "verify").cpu()
    except VictimError as error:
        raise VictimError(f"model {name!r}: {error}") from error
    except InputError as error:
        raise type(error)(f"model {name!r}: {error}") from error
    few = max(row["label"] for row in whole.originals()) >= (victim.classes or 0)
    if few or whole.manifest.outputs not in (0, victim.classes):
        counts = f"has {victim.classes} classes, but the benchmark {whole.name} has {whole.manifest.outputs}"
        raise ModelError(f"the model {name!r} {counts}: use a model with the same classes")
    return scores
