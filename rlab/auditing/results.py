"""What the stages left on disk, read back from their folders: nothing here asks a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlab.benchmarking import Benchmark
from rlab.benchmarking.report import read_report
from rlab.benchmarking.run import BenchmarkReport
from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.explanation import MethodComparison
from rlab.explanation.save import read_comparison
from rlab.runs.files import read_json

DOCTOR, VERIFIED, FIGURES = "doctor.json", "verified.json", "figures.json"


@dataclass(frozen=True)
class Rows:
    """Inputs that reached models: the audited one, further ones of the benchmark, and copies that hardening trains."""

    model: int = 0
    others: int = 0
    copies: int = 0

    def __add__(self, more: Rows) -> Rows:
        return Rows(self.model + more.model, self.others + more.others, self.copies + more.copies)

    @property
    def total(self) -> int:
        return self.model + self.others + self.copies


@dataclass(frozen=True)
class StageRecord:
    """What a finished stage cost."""

    rows: Rows = Rows()
    seconds: float = 0.0
    note: str = ""  # why it has nothing to show, where it has not
    begun: int = 1  # more often than once where it was interrupted

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> StageRecord:
        """From the values of `asdict`."""
        return cls(**{**plain, "rows": Rows(**plain["rows"])})


@dataclass(frozen=True)
class StageResults:
    """Each stage's result; None where it did not run or has nothing to show, and `finished` says why."""

    finished: Mapping[str, StageRecord]
    left_out: Mapping[str, str]  # stages that were to run and did not, and why
    doctor: Mapping[str, Any] | None = None
    attack: AttackResult | None = None
    explain: MethodComparison | None = None
    benchmark: Benchmark | None = None
    report: BenchmarkReport | None = None
    verified: Mapping[str, Any] | None = None
    harden: Mapping[str, Any] | None = None

    @property
    def rows(self) -> Rows:
        return sum((stage.rows for stage in self.finished.values()), Rows())


def read_results(
    folder: Path, finished: Mapping[str, StageRecord], left_out: Mapping[str, str], explained: int
) -> StageResults:
    """Everything the finished stages left on disk; `explained` samples were explained."""
    parts: dict[str, Any] = {}
    for stage in (name for name, record in finished.items() if not record.note):
        stored = folder / stage
        if stage == "doctor":
            parts["doctor"] = read_json(stored / DOCTOR)
        elif stage == "attack":
            parts["attack"] = AttackResult.load(stored)
        elif stage == "explain":
            parts["explain"] = read_comparison(stored, explained_inputs(parts["attack"], explained))
        elif stage == "benchmark":
            parts["benchmark"] = Benchmark.load(stored)
            parts["report"] = read_report(parts["benchmark"], stored / "results" / "report")
            parts["verified"] = read_json(stored / "results" / VERIFIED)
        elif stage == "harden":
            parts["harden"] = read_json(stored / FIGURES)
    return StageResults(dict(finished), dict(left_out), **parts)


def explained_rows(result: AttackResult, samples: int) -> list[int]:
    """The first samples the model has right."""
    rows: list[int] = result.attacked.nonzero().flatten()[:samples].tolist()
    return rows


def explained_inputs(result: AttackResult, samples: int) -> Batch:
    """Those samples as data again."""
    chosen, s = result.where(torch.tensor(explained_rows(result, samples), dtype=torch.int64)), result.setting
    return Batch(
        chosen.original, chosen.labels, chosen.ids, bounds=s.bounds, classes=s.classes, unit=s.unit, rate=s.rate,
        r_peaks=chosen.r_peaks, leads=s.leads,
    )  # fmt: skip
