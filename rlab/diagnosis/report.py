"""What the doctor found, how certain it is, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from rlab.present.page import Banner, Block, Number, Page, Section
from rlab.present.report import Metric, Report
from rlab.present.table import Cell, Share, Table, Tone, Value

if TYPE_CHECKING:  # imported on use: `rlab doctor` draws nothing
    from matplotlib.figure import Figure

RISE = 0.3  # gain in accuracy before a cause is named
FEWEST = 4  # samples that must improve on balance
_SURE = 0.01  # a rise less likely than this by chance is an error, else a warning


class Severity(Enum):
    ERROR = "error"  # results would be wrong
    WARNING = "warning"  # results may mislead, or queries may be wasted
    NOTE = "note"  # good to know


@dataclass(frozen=True)
class Finding:
    level: Severity
    name: str  # a short name such as bounds, normalisation or filter:blur
    what: str  # the observation, with numbers
    change: str  # what to do about it
    flag: str = ""  # the same as command-line options, if there are any


@dataclass(frozen=True)
class Check:
    """A check that passed."""

    name: str
    seen: str  # the observation, with numbers
    covers: tuple[str, ...] = ()  # further names of findings that this check excludes


@dataclass(frozen=True)
class Diagnosis(Report):
    """What the doctor found in a model, its data and a palette, and the checks that passed."""

    verb: ClassVar[str] = "doctor"
    findings: tuple[Finding, ...]  # most severe first
    queries: int
    accuracy: float | None  # on the samples used; None if the labels do not fit the model or it did not answer
    passed: tuple[Check, ...] = ()

    @property
    def healthy(self) -> bool:
        return not any(finding.level is Severity.ERROR for finding in self.findings)

    @property
    def counts(self) -> str:
        """The number of findings of each severity, e.g. '1 error, 2 notes'."""
        counts = {level: sum(f.level is level for f in self.findings) for level in Severity}
        return ", ".join(f"{n} {level.value}{'s' * (n > 1)}" for level, n in counts.items() if n)

    @property
    def sentence(self) -> str:
        """The verdict."""
        if not self.healthy:
            return f"{self.counts}: results will be wrong until you fix this."
        if any(finding.level is Severity.WARNING for finding in self.findings):
            return f"No errors, but {self.counts}: results may mislead, or queries may be wasted."
        return "No problems found."

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.0%}"
        return f"Diagnosis({self.counts or 'no findings'}, {len(self.passed)} checks passed, {self.queries} queries{accuracy})"

    def __str__(self) -> str:
        """One line for each finding and each check that passed."""
        found = [f"{f.level.value}: {f.what}: {f.change}{f' ({f.flag})' if f.flag else ''}" for f in self.findings]
        return "\n".join([repr(self), *found, *(f"passed: {check.name}: {check.seen}" for check in self.passed)])

    def records(self) -> list[dict[str, Any]]:
        """One row per finding, the most severe first, then one per check that passed."""
        found = [(f.name, f.level.value, f.what, f.change, f.flag) for f in self.findings]
        rows = [*found, *((check.name, "passed", check.seen, "", "") for check in self.passed)]
        return [dict(zip(("check", "outcome", "observation", "change", "flag"), row, strict=True)) for row in rows]

    def metrics(self) -> Mapping[str, Metric]:
        counts = {f"{level.value}s": sum(f.level is level for f in self.findings) for level in Severity}
        accuracy = {} if self.accuracy is None else {"accuracy": Share(self.accuracy)}
        return {**counts, "checks passed": len(self.passed), **accuracy, "queries": self.queries}

    def drawings(self, samples: int = 24) -> Mapping[str, Callable[[], Figure]]:
        return {}  # there is nothing to draw

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        blocks: list[Block] = [findings_table(self.findings, self.passed)]
        flags = [[finding.name, finding.flag] for finding in self.findings if finding.flag]
        blocks += [Table(["check", "add to the command"], flags, words=2)] if flags else []
        numbers = [] if self.accuracy is None else [Number("accuracy on these samples", Share(self.accuracy))]
        verdict = Banner(self.healthy, self.sentence.rstrip("."))
        title = f"Diagnosis{'' if folder is None else f' {folder.name}'}"
        return Page(title, [Section("Checks", blocks)], verdict, numbers=[*numbers, Number("queries", self.queries)])


error, warning, note = (partial(Finding, level) for level in Severity)


def findings_table(findings: Sequence[Finding], passed: Sequence[Check] = ()) -> Table:
    tones: dict[Severity, Tone] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.NOTE: ""}
    rows: list[list[Value | Cell]] = [[f.name, Cell(f.level.value, tones[f.level]), f.what, f.change] for f in findings]
    rows += [[check.name, Cell("passed", "pass"), check.seen, ""] for check in passed]
    width = 4 if any(finding.change for finding in findings) else 3
    return Table(["check", "", "observation", "change"][:width], [row[:width] for row in rows], words=width)


def options(**values: object) -> str:
    """-M flags for these model options, in YAML."""
    texts = {name: str(list(value) if isinstance(value, tuple) else value) for name, value in values.items()}
    return " ".join(f"-M {name}={text.replace(' ', '')}" for name, text in texts.items())


def at_least(hits: int, tries: int, chance: float) -> float:
    """The probability of at least `hits` successes in `tries`, each with probability `chance`."""
    return sum(comb(tries, n) * chance**n * (1 - chance) ** (tries - n) for n in range(hits, tries + 1))


def sign_test(before: Tensor, after: Tensor) -> float:
    """(b,), (b,) -> the probability that as many of the changed samples rise by chance."""
    up, down = int((after > before).sum()), int((after < before).sum())
    return at_least(up, up + down, 0.5)


def clear_rise(before: Tensor, after: Tensor) -> Severity | None:
    """Whether (b,) hits rise enough to name a cause, and how certainly."""
    net = int((after > before).sum()) - int((after < before).sum())
    if float(after.mean() - before.mean()) < RISE or net < FEWEST:
        return None
    return Severity.ERROR if sign_test(before, after) < _SURE else Severity.WARNING
