"""What the doctor found, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    ERROR = "error"  # results would be wrong
    WARNING = "warning"  # results may mislead, or queries be wasted
    NOTE = "note"  # good to know


@dataclass(frozen=True)
class Finding:
    level: Level
    what: str  # what was seen, with numbers
    change: str  # what to do about it
    name: str  # a short word for it, such as bounds, normalisation or filter:blur


@dataclass(frozen=True)
class Report:
    findings: tuple[Finding, ...]  # the gravest first
    queries: int  # rows the model was asked about
    accuracy: float | None  # on the samples picked; None where the labels do not fit the model or it did not answer

    @property
    def healthy(self) -> bool:
        return not any(finding.level is Level.ERROR for finding in self.findings)


def error(name: str, what: str, change: str) -> Finding:
    return Finding(Level.ERROR, what, change, name)


def warning(name: str, what: str, change: str) -> Finding:
    return Finding(Level.WARNING, what, change, name)


def note(name: str, what: str, change: str) -> Finding:
    return Finding(Level.NOTE, what, change, name)
