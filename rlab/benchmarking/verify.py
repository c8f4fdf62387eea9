"""Every file once more: its hash, its distance from the stored original, and that its victim errs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.ladder import ORIGINAL
from rlab.core.distances import measure
from rlab.errors import InputError
from rlab.progress import Progress, quiet
from rlab.victims.base import QueryMeter, Victim

_CHUNK = 256
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


def verify_benchmark(
    benchmark: Benchmark | str | Path, victims: Mapping[str, Victim] | None = None, progress: Progress = quiet
) -> Verification:
    """Checks all files; that a victim still errs is checked for those given by the name they have in the benchmark."""
    whole = benchmark if isinstance(benchmark, Benchmark) else Benchmark.load(benchmark)
    models = dict(victims or {})
    if strange := [name for name in models if name not in whole.victims]:
        raise InputError(
            f"{whole.folder} was not made against {strange[0]!r}: its victims are {', '.join(whole.victims)}"
        )
    found, asked, files = list[Mismatch](), 0, 0
    origin = _Origin(whole)
    for victim, level in [("", ORIGINAL), *((v, one) for v in whole.victims for one in whole.ladder.names)]:
        rows = whole.originals() if level == ORIGINAL else [r for r in whole.of(victim, level) if r["reached"]]
        for at in range(0, len(rows), _CHUNK):
            some = rows[at : at + _CHUNK]
            good, values = _readable(whole, some, found)
            files += len(some)
            if good and level != ORIGINAL:
                _check_distances(whole, good, values, origin, found)
                if victim in models:
                    asked += _check_errs(whole, good, values, models[victim], found)
            progress(some)
    unasked = tuple(name for name in whole.victims if name not in models)
    return Verification(files, asked, tuple(found), unasked)


def _readable(whole: Benchmark, rows: list[Row], found: list[Mismatch]) -> tuple[list[Row], Tensor]:
    """The rows whose files have their hash, and their values; the others become mismatches."""
    good, values = [], []
    for row, one in whole.each(rows):
        name = row["file"] if row["row"] is None else f"{row['file']} row {row['row']}"
        if isinstance(one, str):
            found.append(Mismatch(name, one))
            continue
        if whole.found_digest(row, one) != row["sha256"]:
            found.append(Mismatch(name, "its sha256 is not the one in the metadata"))
            continue
        good.append(row)
        values.append(one)
    return good, torch.stack(values) if values else torch.zeros(0)


class _Origin:
    """The stored originals by place."""

    def __init__(self, whole: Benchmark) -> None:
        self.x: dict[int, Tensor] = {}
        for row, one in whole.each(whole.originals()):
            if isinstance(one, Tensor):
                self.x[row["place"]] = one


def _check_distances(whole: Benchmark, rows: list[Row], x: Tensor, origin: _Origin, found: list[Mismatch]) -> None:
    kept = [i for i, row in enumerate(rows) if row["place"] in origin.x]  # the rest are told of as originals
    if not kept:
        return
    x0 = torch.stack([origin.x[rows[i]["place"]] for i in kept])
    assignment = torch.tensor([rows[i]["assignment"] for i in kept])
    far = measure(x0, x[kept], assignment, whole.manifest.shape.bounds)
    for name in ("l2", "linf", "l0_values"):
        for at, i in enumerate(kept):
            said, is_now = float(rows[i][name]), float(far[name][at])
            if not abs(said - is_now) <= _ROUNDING * max(abs(said), 1e-6):
                found.append(Mismatch(rows[i]["file"], f"its {name} is {is_now:.6g}, the metadata say {said:.6g}"))


def _check_errs(whole: Benchmark, rows: list[Row], x: Tensor, victim: Victim, found: list[Mismatch]) -> int:
    meter = QueryMeter(victim, len(rows))
    scores = meter(x.to(victim.device), torch.arange(len(rows)), "verify").cpu()
    check_outputs(whole, victim, "the victim")
    labels = torch.tensor([row["label"] for row in rows])
    for row, held in zip(rows, whole.goal.reached(scores, labels).tolist(), strict=True):
        if not held:
            found.append(Mismatch(row["file"], f"its victim {row['victim']} does not err on it"))
    return int(meter.counts.sum())


def check_outputs(whole: Benchmark, victim: Victim, name: str) -> None:
    """Refuses a model with other classes, at its first answer."""
    if victim.classes != whole.manifest.outputs:
        raise InputError(
            f"{name} answers with {victim.classes} classes, the benchmark {whole.name} has {whole.manifest.outputs}: "
            f"a model of the same classes is needed"
        )
