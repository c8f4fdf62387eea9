"""What the doctor found, how certain it is, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
    PASSED = "passed"  # nothing is wrong


_ORDER = list(Severity)
_SERIOUS = _ORDER[:2]
_TONES: dict[Severity, Tone] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.PASSED: "pass"}


@dataclass(frozen=True)
class Finding:
    level: Severity
    name: str  # a short name such as bounds, normalisation or filter:blur
    what: str  # the observation, with numbers
    change: str = ""  # what to do about it
    flag: str = ""  # the same as command-line options, if there are any

    @property
    def serious(self) -> bool:
        return self.level in _SERIOUS

    def __str__(self) -> str:
        parts = (self.level.value, self.name, self.what, self.change)
        return ": ".join(part for part in parts if part) + (f" ({self.flag})" if self.flag else "")


error, warning, note, passed = (partial(Finding, level) for level in Severity)


@dataclass(frozen=True)
class Diagnosis(Report):
    """What the doctor found in a model, its data and a palette, and the checks that passed."""

    verb: ClassVar[str] = "doctor"
    findings: tuple[Finding, ...]  # most severe first
    queries: int
    accuracy: float | None  # on the samples used; None if the labels do not fit the model or it did not answer
    passed: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, found: Iterable[Finding], queries: int = 0, accuracy: float | None = None) -> Self:
        """Sort what was found; a check has not passed if there is an error or a warning of its name."""
        every = sorted(found, key=lambda finding: _ORDER.index(finding.level))
        failed = {finding.name for finding in every if finding.serious}
        bad = tuple(finding for finding in every if finding.level is not Severity.PASSED)
        fine = {finding.name: finding for finding in every if finding.level is Severity.PASSED}
        return cls(bad, queries, accuracy, tuple(one for name, one in fine.items() if name not in failed))

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
        if any(finding.serious for finding in self.findings):
            return f"No errors, but {self.counts}: results may mislead, or queries may be wasted."
        return "No problems found."

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {self.accuracy:.0%}"
        return f"Diagnosis({self.counts or 'no findings'}, {len(self.passed)} checks passed, {self.queries} queries{accuracy})"

    def __str__(self) -> str:
        """One line for each finding and each check that passed."""
        return "\n".join([repr(self), *map(str, self.findings + self.passed)])

    def records(self) -> list[dict[str, Any]]:
        """One row per finding, the most severe first, then one per check that passed."""
        return [
            {
                "check": one.name,
                "outcome": one.level.value,
                "observation": one.what,
                "change": one.change,
                "flag": one.flag,
            }
            for one in self.findings + self.passed
        ]

    def metrics(self) -> Mapping[str, Metric]:
        counts = {f"{level.value}s": sum(f.level is level for f in self.findings) for level in _ORDER[:3]}
        accuracy = {} if self.accuracy is None else {"accuracy": Share(self.accuracy)}
        return {**counts, "checks passed": len(self.passed), **accuracy, "queries": self.queries}

    def drawings(self, samples: int = 24) -> Mapping[str, Callable[[], Figure]]:
        return {}  # there is nothing to draw

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        blocks: list[Block] = [findings_table(self.findings + self.passed)]
        flags = [[finding.name, finding.flag] for finding in self.findings if finding.flag]
        blocks += [Table(["check", "add to the command"], flags, words=2)] if flags else []
        numbers = [] if self.accuracy is None else [Number("accuracy on these samples", Share(self.accuracy))]
        verdict = Banner(self.healthy, self.sentence.rstrip("."))
        title = f"Diagnosis{'' if folder is None else f' {folder.name}'}"
        return Page(title, [Section("Checks", blocks)], verdict, numbers=[*numbers, Number("queries", self.queries)])


def findings_table(findings: Sequence[Finding]) -> Table:
    rows: list[list[Value | Cell]] = [
        [f.name, Cell(f.level.value, _TONES.get(f.level, "")), f.what, f.change] for f in findings
    ]
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
