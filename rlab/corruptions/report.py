"""The report of `rlab corrupt`: accuracy and calibration by kind and level, as a table, a picture, files and a page."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlab.present.page import Bar, Bars, Block, Number, Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Share, Table, Value
from rlab.stats import NOTHING, Estimate, share_estimate

CLEAN = "clean"
RULES = (
    "Accuracy by kind and level, each over all samples; 'mean' is over the levels. ECE is the expected calibration error in 15 "
    "bins of confidence, over all levels."
)
BESIDE = (
    "CE is the error of all levels divided by the baseline's, mCE its mean over the kinds; relative CE does the same with what the "
    "error grows beyond the clean one."
)


@dataclass(frozen=True)
class Tally:
    """Answers to one set of inputs: how many are right, and the same in bins of confidence."""

    samples: int
    right: int
    bins: tuple[tuple[int, int, float], ...]  # answers, right answers, sum of confidences
    rows: int = 0  # that reached the model, retries included

    @property
    def accuracy(self) -> Estimate:
        return share_estimate(self.right, self.samples)

    @property
    def ece(self) -> float:
        """The mean gap between confidence and accuracy, weighted by the answers in a bin."""
        return sum(abs(right - sure) for _, right, sure in self.bins) / self.samples if self.samples else math.nan

    def __add__(self, other: Tally) -> Tally:
        pairs = zip(self.bins, other.bins, strict=True)
        bins = tuple((a + c, b + d, e + f) for (a, b, e), (c, d, f) in pairs)
        return Tally(self.samples + other.samples, self.right + other.right, bins, self.rows + other.rows)


NO_TALLY = Tally(0, 0, ())


@dataclass(frozen=True)
class CorruptionReport(Report):
    """How right and how sure a model is under corruptions."""

    verb: ClassVar[str] = "corrupt"
    clean: Tally
    kinds: Mapping[str, tuple[Tally, ...]]  # one tally per level
    levels: tuple[int, ...]
    data: str  # fingerprint
    rows: int  # that reached the model
    baseline: CorruptionReport | None = None

    def __repr__(self) -> str:
        return f"CorruptionReport({len(self.kinds)} kinds, {len(self.levels)} levels, accuracy {self.accuracy:.1%})"

    @property
    def accuracy(self) -> float:
        """The mean over kinds and levels."""
        return 1 - float(np.mean([_error(tallies) for tallies in self.kinds.values()]))

    @property
    def ece(self) -> float:
        """The mean over kinds of the calibration error."""
        return float(np.mean([_all(tallies).ece for tallies in self.kinds.values()]))

    def totals(self) -> dict[str, Tally]:
        """By kind, all levels together."""
        return {kind: _all(tallies) for kind, tallies in self.kinds.items()}

    def ratios(self, relative: bool = False) -> dict[str, float]:
        """By kind: the error divided by the baseline's, or what it grows beyond the clean one; NaN where that is zero."""
        if self.baseline is None:
            return {}
        own, other = ({kind: report._grown(kind, relative) for kind in self.kinds} for report in (self, self.baseline))
        return {kind: own[kind] / other[kind] if other[kind] else math.nan for kind in self.kinds}

    def _grown(self, kind: str, relative: bool) -> float:
        return _error(self.kinds[kind]) - (1 - self.clean.accuracy.value if relative else 0.0)

    @property
    def mce(self) -> float:
        """The mean corruption error against the baseline; NaN without one."""
        return _mean(self.ratios())

    @property
    def relative_mce(self) -> float:
        return _mean(self.ratios(relative=True))

    def table(self) -> Table:
        """One row per kind, below the clean accuracy and above the mean."""
        ratios = self.ratios()
        heads = ["corruption", *(f"{level}" for level in self.levels), "mean", "ECE", *(["CE"] if ratios else [])]

        def row(name: str, accuracies: Sequence[float], ece: float, ratio: float) -> list[Value | Share]:
            cells = [Share(value, 0) for value in accuracies]  # 80 columns hold no digit more
            ends: list[Value | Share] = [Share(float(np.mean(accuracies))), round(ece, 3), round(ratio, 2)]
            return [name, *cells, *ends[: 2 + bool(ratios)]]

        clean = [self.clean.accuracy.value] * len(self.levels)
        rows = [row(CLEAN, clean, self.clean.ece, math.nan)] if self.clean.samples else []
        for kind, tallies in self.kinds.items():
            values = [tally.accuracy.value for tally in tallies]
            rows.append(row(kind, values, _all(tallies).ece, ratios.get(kind, math.nan)))
        by_level = np.mean([[tally.accuracy.value for tally in tallies] for tallies in self.kinds.values()], 0).tolist()
        return Table(heads, [*rows, row("mean", by_level, self.ece, self.mce)])

    def _figures(self) -> dict[str, float | Share]:
        ratios = {"mCE": round(self.mce, 3), "relative mCE": round(self.relative_mce, 3)}
        return {
            **({"clean accuracy": Share(self.clean.accuracy)} if self.clean.samples else {}),
            "accuracy under corruptions": Share(self.accuracy),
            "calibration error": round(self.ece, 3),
            **({} if self.baseline is None else ratios),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row per kind and level."""
        return [
            {"kind": kind, "level": level, "accuracy": tally.accuracy.value, "low": tally.accuracy.low}
            | {"high": tally.accuracy.high, "ece": tally.ece, "samples": tally.samples}
            for kind, tallies in self.kinds.items()
            for level, tally in zip(self.levels, tallies, strict=True)
        ]

    def blocks(self) -> list[Block]:
        totals = {kind.replace("_", " "): tally.accuracy.value for kind, tally in self.totals().items()}
        bars = [Bar(kind, share, f"{share:.0%}") for kind, share in totals.items()]
        rules = RULES if self.baseline is None else f"{RULES} {BESIDE}"
        return [Bars("accuracy by kind of corruption", bars), self.table(), Text(rules, quiet=True)]

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        title = f"Accuracy under corruptions{'' if folder is None else f': {folder.name}'}"
        numbers = [Number(name, value) for name, value in {**self._figures(), "queries": self.rows}.items()]
        return Page(title, [Section("Corruptions", self.blocks())], numbers=numbers)

    def metrics(self) -> Mapping[str, Metric]:
        kinds = {kind: Share(tally.accuracy) for kind, tally in self.totals().items()}
        return {**self._figures(), **kinds, "queries": self.rows}

    def settings(self) -> Mapping[str, Any]:
        return {"kinds": list(self.kinds), "levels": self.levels}


def _all(tallies: Sequence[Tally]) -> Tally:
    return reduce(operator.add, tallies)


def _error(tallies: Sequence[Tally]) -> float:
    return 1 - _all(tallies).accuracy.value


def _mean(ratios: Mapping[str, float]) -> float:
    known = [ratio for ratio in ratios.values() if math.isfinite(ratio)]
    return float(np.mean(known)) if known else NOTHING.value
