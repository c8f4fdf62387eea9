"""What the doctor found, how surely, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import comb

from torch import Tensor

from rlab.present.table import Cell, Cells, Table, Tone

RISE = 0.3  # of accuracy, before a cause is named
FEWEST = 4  # samples that must change for the better, on balance
_SURE = 0.01  # below this chance, a rise is an error and not a suspicion


class Severity(Enum):
    ERROR = "error"  # results would be wrong
    WARNING = "warning"  # results may mislead, or queries be wasted
    NOTE = "note"  # good to know


@dataclass(frozen=True)
class Finding:
    level: Severity
    name: str  # a short word for it, such as bounds, normalisation or filter:blur
    what: str  # what was seen, with numbers
    change: str  # what to do about it
    flag: str = ""  # the same as options of a command, where there are such


@dataclass(frozen=True)
class Check:
    """A check that found nothing."""

    name: str
    seen: str  # with numbers
    covers: tuple[str, ...] = ()  # names of findings it stands for, beside its own


@dataclass(frozen=True)
class Diagnosis:
    findings: tuple[Finding, ...]  # the gravest first
    queries: int  # rows the model was asked about
    accuracy: float | None  # on the samples picked; None where the labels do not fit the model or it did not answer
    passed: tuple[Check, ...] = ()

    @property
    def healthy(self) -> bool:
        return not any(finding.level is Severity.ERROR for finding in self.findings)

    @property
    def counts(self) -> str:
        """How many findings of which gravity; '' without any."""
        counts = {level: sum(f.level is level for f in self.findings) for level in Severity}
        return ", ".join(f"{n} {level.value}{'s' * (n > 1)}" for level, n in counts.items() if n)

    @property
    def sentence(self) -> str:
        """Whether anything stands in the way."""
        if not self.healthy:
            return f"{self.counts}: results would be wrong until that is changed."
        if any(finding.level is Severity.WARNING for finding in self.findings):
            return f"No errors, but {self.counts}: results may mislead, or queries be wasted, until that is looked at."
        return "Nothing stands in the way."

    def __repr__(self) -> str:
        right = "" if self.accuracy is None else f", {self.accuracy:.0%} right"
        return f"Diagnosis({self.counts or 'nothing found'}, {len(self.passed)} checks passed, {self.queries} queries{right})"

    def __str__(self) -> str:
        """A line for every finding and every check that passed."""
        told = [f"{f.level.value}: {f.what}: {f.change}{f' ({f.flag})' if f.flag else ''}" for f in self.findings]
        return "\n".join([repr(self), *told, *(f"passed: {check.name}: {check.seen}" for check in self.passed)])


error, warning, note = (partial(Finding, level) for level in Severity)


def findings_table(findings: Sequence[Finding], passed: Sequence[Check] = ()) -> Table:
    """What was found and what to change, then the checks that found nothing."""
    tones: dict[Severity, Tone] = {Severity.ERROR: "fail", Severity.WARNING: "warn", Severity.NOTE: ""}
    rows: list[Cells] = [[Cell(f.level.value, tones[f.level]), f.name, f.what, f.change] for f in findings]
    rows += [[Cell("passed", "pass"), check.name, check.seen, ""] for check in passed]
    return Table(["", "check", "seen", "change"], rows, words=4)


def options(**values: object) -> str:
    """-M flags of these model options, as YAML reads them."""
    texts = {name: str(list(value) if isinstance(value, tuple) else value) for name, value in values.items()}
    return " ".join(f"-M {name}={text.replace(' ', '')}" for name, text in texts.items())


def at_least(hits: int, tries: int, chance: float) -> float:
    """The probability of `hits` or more in `tries`, each with probability `chance`."""
    return sum(comb(tries, n) * chance**n * (1 - chance) ** (tries - n) for n in range(hits, tries + 1))


def sign_test(before: Tensor, after: Tensor) -> float:
    """(b,), (b,) -> how likely so many of the changed samples rise, were it heads or tails."""
    up, down = int((after > before).sum()), int((after < before).sum())
    return at_least(up, up + down, 0.5)


def clear_rise(before: Tensor, after: Tensor) -> Severity | None:
    """Whether (b,) hits rise enough to name a cause, and how surely."""
    net = int((after > before).sum()) - int((after < before).sum())
    if float(after.mean() - before.mean()) < RISE or net < FEWEST:
        return None
    return Severity.ERROR if sign_test(before, after) < _SURE else Severity.WARNING
