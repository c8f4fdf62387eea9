"""Figures of the folders whose commands do not have a `Report` yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from matplotlib.figure import Figure

from rlab.comparison.comparison import Comparison
from rlab.comparison.outcome import Figures
from rlab.errors import FolderError
from rlab.folders.records import flat_settings
from rlab.present.page import Page, Section
from rlab.present.report import Metric, Report
from rlab.present.table import Share
from rlab.results.data import WITHIN
from rlab.results.metrics import compared_sections
from rlab.results.result import AttackResult


@dataclass(frozen=True)
class OlderReport(Report):
    verb: ClassVar[str] = "run"
    flat: Mapping[str, str]
    figures: Mapping[str, Metric]
    points: Sequence[tuple[int, Mapping[str, float]]] = ()
    attack: AttackResult | None = None

    def records(self) -> list[dict[str, Any]]:
        return []

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        return Page("", [])

    def plot(self) -> Figure:
        raise FolderError("there is no figure")

    def drawings(self, samples: int = 24) -> Mapping[str, Callable[[], Figure]]:
        return {}

    def metrics(self) -> Mapping[str, Metric]:
        return self.figures

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        return self.points

    def settings(self) -> Mapping[str, str]:
        return self.flat

    @classmethod
    def compared(cls, reports: Mapping[str, Self]) -> Sequence[Section]:
        attacks = {name: report.attack for name, report in reports.items() if report.attack is not None}
        return compared_sections(attacks) if len(attacks) == len(reports) else ()


def compare(run: Path) -> OlderReport:
    comparison = Comparison.load(run)
    figures: dict[str, Metric] = {}
    for name, outcome in comparison.outcomes.items():
        own = Figures.of(outcome, comparison.seed)
        figures |= {f"{name}: success": Share(own.success), f"{name}: L2": own.l2, f"{name}: queries": own.queries}
        figures |= {f"{name}: within {q}": own.within[q] for q in WITHIN if q < comparison.budget}
    settings = {"budget": comparison.budget, "seed": comparison.seed, "attacks": list(comparison.outcomes)}
    return OlderReport(flat_settings(settings), figures)
