"""The report of an audit, until its own class is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from rlab.auditing.page import stored_audit_page
from rlab.auditing.stages import read_audit
from rlab.present.page import Page, Section
from rlab.present.report import Metric, PathLike, Report
from rlab.results.metrics import anytime_series, attack_metrics, compared_sections
from rlab.results.result import AttackResult


@dataclass(frozen=True)
class OlderAudit(Report):
    verb: ClassVar[str] = "audit"
    where: Path
    record: Mapping[str, Any]
    attack: AttackResult | None = None

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        record, stages = read_audit(Path(folder))
        return cls(Path(folder), record, stages.attack)

    def records(self) -> list[dict[str, Any]]:
        return [dict(requirement) for requirement in self.record["requirements"]]

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        return stored_audit_page(self.where)

    def metrics(self) -> Mapping[str, Metric]:
        rows = self.record["requirements"]
        figures: dict[str, Metric] = {
            row["requirement"]: float(row["value"]) for row in rows if isinstance(row["value"], int | float)
        }
        figures |= {} if self.attack is None else attack_metrics(self.attack)
        return {**figures, "passed": float(all(row["passed"] for row in rows))}

    def series(self) -> Sequence[tuple[int, Mapping[str, float]]]:
        return () if self.attack is None else anytime_series(self.attack)

    def settings(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.record["config"]
        return settings

    @classmethod
    def compared(cls, reports: Mapping[str, Self]) -> Sequence[Section]:
        attacks = {name: report.attack for name, report in reports.items() if report.attack is not None}
        return compared_sections(attacks) if len(attacks) == len(reports) else ()
