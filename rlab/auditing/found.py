"""What the stages found, read back from their folders: nothing here asks a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlab.auditing.config import AuditConfig
from rlab.auditing.manifest import Done, Rows
from rlab.auditing.stages import DOCTOR, FIGURES, VERIFIED, explained
from rlab.auditing.stored import batch_of, read_comparison, read_json, read_report
from rlab.benchmarking import Benchmark, Report
from rlab.core.result import AttackResult
from rlab.explanation import MethodComparison


@dataclass(frozen=True)
class Found:
    """Each stage's result; None where it did not run or has nothing to show, and `done` says why."""

    done: Mapping[str, Done]
    left_out: Mapping[str, str]  # stages that were to run and did not, and why
    doctor: Mapping[str, Any] | None = None
    attack: AttackResult | None = None
    explain: MethodComparison | None = None
    benchmark: Benchmark | None = None
    report: Report | None = None
    verified: Mapping[str, Any] | None = None
    harden: Mapping[str, Any] | None = None

    @property
    def rows(self) -> Rows:
        return sum((one.rows for one in self.done.values()), Rows())


def read_found(config: AuditConfig, folder: Path, done: Mapping[str, Done], left_out: Mapping[str, str]) -> Found:
    """Everything the finished stages left on disk."""
    there = {name for name, one in done.items() if not one.note}
    parts: dict[str, Any] = {}
    if "doctor" in there:
        parts["doctor"] = read_json(folder / "doctor" / DOCTOR)
    if "attack" in there:
        parts["attack"] = AttackResult.load(folder / "attack")
    if "explain" in there and config.explain is not None:
        rows = explained(parts["attack"], config.explain.samples)
        parts["explain"] = read_comparison(folder / "explain", batch_of(parts["attack"], rows))
    if "benchmark" in there:
        parts["benchmark"] = Benchmark.load(folder / "benchmark")
        parts["report"] = read_report(parts["benchmark"], folder / "benchmark" / "results" / "report")
        parts["verified"] = read_json(folder / "benchmark" / "results" / VERIFIED)
    if "harden" in there:
        parts["harden"] = read_json(folder / "harden" / FIGURES)
    return Found(done=dict(done), left_out=dict(left_out), **parts)
