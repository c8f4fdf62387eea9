"""What the doctor found, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rlab.present.table import Cell, Table, Tone


class Severity(Enum):
    ERROR = "error"  # results would be wrong
    WARNING = "warning"  # results may mislead, or queries be wasted
    NOTE = "note"  # good to know


@dataclass(frozen=True)
class Finding:
    level: Severity
    what: str  # what was seen, with numbers
    change: str  # what to do about it
    name: str  # a short word for it, such as bounds, normalisation or filter:blur


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]  # the gravest first
    queries: int  # rows the model was asked about
    accuracy: float | None  # on the samples picked; None where the labels do not fit the model or it did not answer

    @property
    def healthy(self) -> bool:
        return not any(finding.level is Severity.ERROR for finding in self.findings)


def error(name: str, what: str, change: str) -> Finding:
    return Finding(Severity.ERROR, what, change, name)


def warning(name: str, what: str, change: str) -> Finding:
    return Finding(Severity.WARNING, what, change, name)


def note(name: str, what: str, change: str) -> Finding:
    return Finding(Severity.NOTE, what, change, name)


def findings_table(findings: Sequence[Finding]) -> Table:
    """What was found and what to change."""
    tones: dict[Severity, Tone] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.NOTE: ""}
    rows = [[Cell(one.level.value, tones[one.level]), one.name, one.what, one.change] for one in findings]
    return Table(["", "finding", "seen", "change"], rows, words=4)
