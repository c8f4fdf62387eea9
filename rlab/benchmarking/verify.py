"""Every file once more: its hash, its distance from the stored original, and that its victim errs on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rlab.benchmarking.folder import Benchmark, Row
from rlab.core.distances import measure
from rlab.errors import InputError
from rlab.progress import Progress, quiet
from rlab.victims.base import Victim

CHUNK = 256  # files read and asked about at once
_ROUNDING = 1e-4  # relative, of a distance summed on other hardware


@dataclass(frozen=True)
class Mismatch:
    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


@dataclass(frozen=True)
class Verification:
    """What was checked and what does not hold."""

    files: int
    asked: int  # rows that reached a model
    mismatches: tuple[Mismatch, ...]
    unasked: tuple[str, ...]  # victims that were not given

    @property
    def holds(self) -> bool:
        return not self.mismatches

    def __str__(self) -> str:
        asked = f", {self.asked} rows asked of their victims" if self.asked else ""
        not_asked = f"; not asked: {', '.join(self.unasked)}" if self.unasked else ""
        outcome = "all hold" if self.holds else f"{len(self.mismatches)} do not hold"
        return f"{self.files} files{asked}{not_asked}: {outcome}"


def verify_benchmark(
    benchmark: Benchmark | str | Path, victims: Mapping[str, Victim] | None = None, progress: Progress = quiet
) -> Verification:
    """Checks all files; that a victim still errs is checked for those given by the name they have in the benchmark."""
    whole = benchmark if isinstance(benchmark, Benchmark) else Benchmark.load(benchmark)
    models = dict(victims or {})
    if strange := [name for name in models if name not in whole.models]:
        names = f"its victims are {', '.join(whole.models)}" if whole.models else "no model was asked for it"
        raise InputError(f"{whole.folder} was not made against {strange[0]!r}: {names}")
    mismatches, asked = list[Mismatch](), 0
    originals = {row["place"]: x for row, x in _readable(whole, whole.originals(), mismatches)}
    progress(whole.originals())
    for victim, _, rows in whole.sets():
        for some in (rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)):
            pairs = _readable(whole, some, mismatches)
            mismatches += _wrong_distances(whole, pairs, originals)
            for name in whole.models_of(victim) if pairs else ():
                if name in models:
                    before = models[name].rows.total()
                    mismatches += _correct_answers(whole, pairs, name, models[name])
                    asked += models[name].rows.total() - before
            progress(some)
    unasked = tuple(name for name in whole.models if name not in models)
    return Verification(sum(bool(row["reached"]) for row in whole.rows), asked, tuple(mismatches), unasked)


def _readable(whole: Benchmark, rows: Sequence[Row], mismatches: list[Mismatch]) -> list[tuple[Row, Tensor]]:
    """The rows whose files have their hash, with their values (c, *size); the others become mismatches."""
    pairs = []
    for row, values in whole.each(rows):
        if isinstance(values, str):
            name = row["file"] if row["row"] is None else f"{row['file']} row {row['row']}"
            mismatches.append(Mismatch(name, values))
        else:
            pairs.append((row, values))
    return pairs


def _wrong_distances(
    whole: Benchmark, pairs: Sequence[tuple[Row, Tensor]], originals: Mapping[int, Tensor]
) -> list[Mismatch]:
    pairs = [(row, x) for row, x in pairs if row["place"] in originals]  # the rest are named as originals
    if not pairs:
        return []
    x0 = torch.stack([originals[row["place"]] for row, _ in pairs])
    assignment = torch.tensor([row["assignment"] for row, _ in pairs])
    distances = measure(x0, torch.stack([x for _, x in pairs]), assignment, whole.manifest.shape.bounds)
    wrong = []
    for name in ("l2", "linf", "l0_values"):
        for (row, _), is_now in zip(pairs, distances[name].tolist(), strict=True):
            stated = float(row[name])
            if not abs(stated - is_now) <= _ROUNDING * max(abs(stated), 1e-6):
                wrong.append(Mismatch(row["file"], f"its {name} is {is_now:.6g}, the metadata say {stated:.6g}"))
    return wrong


def _correct_answers(
    whole: Benchmark, pairs: Sequence[tuple[Row, Tensor]], name: str, victim: Victim
) -> list[Mismatch]:
    """Files on which the victim does not err, or errs where the level lies before the flip; one query each."""
    x = torch.stack([x for _, x in pairs]).to(victim.device)
    scores = victim(x, "verify").cpu()
    check_outputs(whole, victim, "the victim")
    errs = whole.goal.reached(scores, torch.tensor([row["label"] for row, _ in pairs])).tolist()
    near = whole.ladder.names[: whole.ladder.before]
    wrong = [row for (row, _), err in zip(pairs, errs, strict=True) if err == (row["level"] in near)]
    said = ("does not err", "errs")
    return [Mismatch(row["file"], f"its victim {name} {said[row['level'] in near]} on it") for row in wrong]


def check_outputs(whole: Benchmark, victim: Victim, name: str) -> None:
    """Refuses a model with other classes, at its first answer; of a set without a model they may not be known."""
    few = max(row["label"] for row in whole.originals()) >= (victim.classes or 0)
    if few or whole.manifest.outputs not in (0, victim.classes):
        counts = f"with {victim.classes} classes, the benchmark {whole.name} has {whole.manifest.outputs}"
        raise InputError(f"{name} answers {counts}: a model of the same classes is needed")
