"""Several methods on the same samples: their maps and scores, as a table and as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from torch import Tensor

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.scores import RULES, SCORES, mean_of, score_table
from rlab.explanation.viewers import legend, sample_viewers
from rlab.present.notebook import blocks_html
from rlab.present.page import Block, Section, Text
from rlab.present.table import Table
from rlab.stats import Estimate, mean_estimate


@dataclass(frozen=True)
class ScoredMethod:
    """The maps of one method and its scores (n,) by name."""

    explanation: Explanation
    scores: Mapping[str, Tensor]

    def mean(self, name: str, seed: int = 0) -> Estimate:
        """The mean over samples that have the score, with its bootstrap interval; NaN if there is none."""
        return mean_of(self.scores, name, seed)


@dataclass(frozen=True)
class MethodComparison:
    """Scored methods by name, in the order they ran; `left_out` says which scores are missing and why."""

    batch: Batch
    judged: Mapping[str, ScoredMethod]
    left_out: tuple[str, ...] = ()
    seed: int = 0
    copy_rows: int = 0  # rows that reached the copy with shuffled weights

    def __repr__(self) -> str:
        return f"MethodComparison({', '.join(self.judged)} on {len(self.batch)} samples)"

    def _repr_html_(self) -> str:
        return blocks_html(self.section(limit=2, cell=uuid4().hex[:8]).blocks)

    def difference(self, method: str, other: str, score: str) -> Estimate:
        """The mean difference of two methods over the same samples, with its paired bootstrap interval."""
        gap = self.judged[method].scores[score] - self.judged[other].scores[score]
        return mean_estimate(gap.double().numpy(), self.seed)

    @property
    def names(self) -> list[str]:
        """Scores that any method has, in the table's order."""
        return [name for name in SCORES if any(name in method.scores for method in self.judged.values())]

    def table(self, intervals: bool = False) -> Table:
        """Mean scores; with intervals the table is too wide for a terminal."""
        shown = {name: name + "\n(white box)" * method.explanation.gradients for name, method in self.judged.items()}
        return score_table({shown[name]: method.scores for name, method in self.judged.items()}, self.seed, intervals)

    def class_table(self) -> Table:
        """Mean scores by explained class and method."""
        names = [name for name in self.names if name in ("dice", "deletion", "insertion")]
        rows: list[list[str | float]] = []
        labels = next(iter(self.judged.values())).explanation.labels
        for label in labels.unique().tolist():
            at = labels == label
            for method, scored in self.judged.items():
                means = [float(scored.scores[name][at].mean()) for name in names]
                rows.append([self.batch.label_name(label), method, int(at.sum()), *means])
        return Table(["class", "method", "samples", *names], rows, "By class", words=2)

    def section(self, limit: int | None = None, cell: str = "") -> Section:
        """Scores with intervals, then the first `limit` samples with every method's map.

        `cell` is a prefix for ids in a notebook cell, where nothing moves.
        """
        samples = range(len(self.batch))[:limit]
        blocks: list[Block] = [Text(f"{line}.") for line in self.left_out]
        blocks += [self.table(intervals=True), Text(RULES, quiet=True), *legend(self.batch)]
        explanations = {name: method.explanation for name, method in self.judged.items()}
        dice = {name: method.scores["dice"] for name, method in self.judged.items() if "dice" in method.scores}
        for row in samples:
            notes = {name: f"Dice {float(values[row]):.2f}" for name, values in dice.items()}
            blocks += sample_viewers(explanations, self.batch, row, len(samples) * len(explanations), notes, cell)
        return Section("Explanations", [*blocks, self.class_table()])
