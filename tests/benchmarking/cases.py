"""Shared by the tests of benchmarks: small exact victims, and benchmarks that are made once."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlab.benchmarking import Benchmark, make_benchmark
from rlab.benchmarking.formats import FormatName
from rlab.data.batch import Batch
from rlab.victims import TorchVictim, Victim
from tests.helpers import PALETTE, PATCHES, exact_victim, labelled_by, make_batch

FORMATS: dict[int, tuple[FormatName, ...]] = {
    1: ("npz",),
    2: ("npz", "png"),
    3: ("npz", "mp4"),
}
PAIRS = [(rank, form) for rank, names in FORMATS.items() for form in names]
OPTIONS: dict[str, Any] = {
    "palette": PALETTE, "policy": "square", "budget": 60, "steps": 8, "ladder": "times:1.5,2", "seed": 3,
}  # fmt: skip


class Case:
    """Six samples in one chunk; the victim is wrong about the second from the start."""

    def __init__(self, rank: int = 2, n: int = 6) -> None:
        self.rank, self.victim = rank, exact_victim(rank)
        self.batch: Batch = labelled_by(self.victim, make_batch(rank, n), wrong=(1,))

    def make(self, folder: Path, victim: Victim | None = None, **other: Any) -> Benchmark:
        options = OPTIONS | {"patch": PATCHES[self.rank], "chunk": 6} | other
        return make_benchmark({"exact": victim or self.victim}, self.batch, folder, **options)


_FOLDER = tempfile.TemporaryDirectory(prefix="rlab-benchmarks-")


@cache
def _once(rank: int, form: str) -> tuple[Path, dict[str, int]]:
    case = Case(rank)
    return case.make(Path(_FOLDER.name) / f"{rank}-{form}", format=form).folder, dict(case.victim.rows)


def made_once(tmp_path: Path, rank: int = 2, form: str = "png") -> Benchmark:
    """A copy in the folder `b` of a benchmark that is made once."""
    return Benchmark.load(shutil.copytree(_once(rank, form)[0], tmp_path / "b"))


def victim_queries(rank: int, form: str) -> dict[str, int]:
    """Queries by phase that the victim counted while that benchmark was made."""
    return _once(rank, form)[1]


class Brightness(nn.Module):
    """Two classes, separated by the mean of all values at `cut`."""

    def __init__(self, cut: float = 0.5, classes: int = 3) -> None:
        super().__init__()
        self.cut, self.classes = nn.Parameter(torch.tensor(cut)), classes

    def forward(self, x: Tensor) -> Tensor:
        away = 40 * (x.flatten(1).mean(1) - self.cut)
        rest = [torch.full_like(away, -50.0)] * (self.classes - 2)
        return torch.stack([-away, away, *rest], 1)


def brightness(cut: float = 0.5, classes: int = 3) -> TorchVictim:
    return TorchVictim(Brightness(cut, classes), outputs="logits")


def counted(benchmark: Benchmark) -> dict[str, int]:
    """Queries by phase according to the metadata."""
    return {phase: sum(row[f"queries_{phase}"] for row in benchmark.rows) for phase in ("search", "cleanup", "verify")}


def reached(benchmark: Benchmark, level: str, victim: str = "exact") -> list[Any]:
    return [row for row in benchmark.of(victim, level) if row["reached"]]
