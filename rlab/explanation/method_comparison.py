"""Methods compared by the scores of their maps: tables, a page, pictures and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.explanation.base import Method
from rlab.explanation.explanation import PICTURED, Explanation
from rlab.explanation.files import save_comparison
from rlab.explanation.pictures import draw_maps
from rlab.explanation.viewers import legend, sample_viewers
from rlab.present.notebook import blocks_html
from rlab.present.page import Block, Page, Section, Text
from rlab.present.result import PathLike, Result
from rlab.present.table import Table
from rlab.stats import Estimate, mean_estimate

SCORES = ("queries", "dice", "iou", "pointing", "energy", "dice_map", "deletion", "insertion", "stability", "sanity")
RULES = (
    "Dice, IoU: overlap of the mask and the ground truth. Dice of the map: that of the map itself, cut by the same rule; some "
    "methods first spread it over places that look alike, which uses only the input. Pointing: whether the map's highest point "
    "lies inside the ground truth. Energy: the share of the map inside. Deletion (lower is better) and insertion: area under the "
    "class's probability as the highest points are blurred, or shown. Stability: rank correlation between two seeds. Sanity: rank "
    "correlation with the map of the same model with shuffled weights; near 1 means that the map does not depend on the model. "
    "Queries: rows per "
    "sample that reached the model for the map, including the clean prediction but not the rows for scores."
)

MIDDLE = "middle"  # the method
AGAINST = (
    f"A map that does not beat {MIDDLE}, which ignores the model, shows nothing in this score: its interval includes 0 or lies on "
    "the wrong side, above 0 for deletion and below 0 for the others."
)


def refuse_unscored(methods: Iterable[Method]) -> None:
    """Refuse methods that cannot be scored."""
    for method in methods:
        if not method.scored:
            raise OptionError(f"the method {method.name!r} cannot be scored: compare 'belief' instead")


def mean_of(scores: Mapping[str, Tensor], name: str, seed: int = 0) -> Estimate:
    """The mean over samples (n,) that have the score, with its bootstrap interval; NaN if none has it."""
    return mean_estimate(scores[name].double().numpy() if name in scores else np.empty(0), seed)


def score_table(scores: Mapping[str, Mapping[str, Tensor]], seed: int = 0, intervals: bool = False) -> Table:
    """Scores (n,) by method and name -> one row per method; queries have no interval."""
    names, rows = [name for name in SCORES if any(name in own for own in scores.values())], []
    for method, own in scores.items():
        means = [mean_of(own, name, seed) for name in names]
        whole = [intervals and name != "queries" for name in names]
        rows.append([method, *(mean if w else mean.value for mean, w in zip(means, whole, strict=True))])
    return Table(["method", *_heads(names)], rows, "Means and 95% bootstrap intervals" if intervals else "")


def _heads(names: Sequence[str]) -> list[str]:
    return [{"dice": "Dice", "dice_map": "Dice of\nthe map", "iou": "IoU"}.get(name, name) for name in names]


@dataclass(frozen=True)
class ScoredMethod:
    """The maps of one method and its scores (n,) by name."""

    explanation: Explanation
    scores: Mapping[str, Tensor]

    def mean(self, name: str, seed: int = 0) -> Estimate:
        return mean_of(self.scores, name, seed)


@dataclass(frozen=True)
class MethodComparison(Result):
    """Scored methods by name, in the order they ran; `left_out` says which scores are missing and why."""

    batch: Batch
    judged: Mapping[str, ScoredMethod]
    left_out: tuple[str, ...] = ()
    seed: int = 0
    rows: int = 0  # rows that reached the model, for maps and scores
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

    def middle_table(self) -> Table | None:
        """Each method minus the method `middle`, which ignores the model; None without it."""
        others = [name for name in self.judged if name != MIDDLE]
        if MIDDLE not in self.judged or not others:
            return None
        names = [name for name in ("dice", "dice_map", "deletion", "insertion") if name in self.names]
        rows: list[list[str | Estimate]] = [
            [method, *(self.difference(method, MIDDLE, name) for name in names)] for method in others
        ]
        return Table(
            [f"minus {MIDDLE}", *_heads(names)], rows, f"Against a Gaussian in the middle, the method {MIDDLE}"
        )

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

    def records(self) -> list[dict[str, Any]]:
        """One row per method and sample with its scores; None for a score that a method does not have."""
        records = []
        for name, own in self.judged.items():
            for i, (sample, label) in enumerate(zip(self.batch.ids, own.explanation.labels.tolist(), strict=True)):
                about = {"id": sample, "explained": label, "explained_name": self.batch.label_name(label)}
                scores = {each: own.scores[each][i].item() if each in own.scores else None for each in self.names}
                records.append({"method": name, **about, **scores})
        return records

    def plot(self, sample: int = 0) -> Figure:
        """Draw one sample with the map of every method."""
        explained = {name: method.explanation for name, method in self.judged.items()}
        return draw_maps(explained, self.batch, [range(len(self.batch))[sample]])

    def make_page(self) -> Page:
        return Page("Explanations compared", [self.section(PICTURED)])

    def save(self, folder: PathLike) -> Path:
        """Write every method's arrays, scores.csv and gallery.html."""
        save_comparison(self, Path(folder), "Explanations compared", PICTURED)
        return Path(folder)

    def section(self, limit: int | None = None, cell: str = "") -> Section:
        """Scores with intervals, then the first `limit` samples with every method's map.

        `cell` is a prefix for ids in a notebook cell, where nothing moves.
        """
        samples = range(len(self.batch))[:limit]
        blocks: list[Block] = [Text(f"{line}.") for line in self.left_out]
        middle = self.middle_table()
        blocks += [self.table(intervals=True), Text(RULES, quiet=True)]
        blocks += [middle, Text(AGAINST, quiet=True)] if middle else []
        blocks += legend()
        explanations = {name: method.explanation for name, method in self.judged.items()}
        dice = {name: method.scores["dice"] for name, method in self.judged.items() if "dice" in method.scores}
        for row in samples:
            notes = {name: f"Dice {float(values[row]):.2f}" for name, values in dice.items()}
            blocks += sample_viewers(explanations, self.batch, row, len(samples) * len(explanations), notes, cell)
        return Section("Explanations", [*blocks, self.class_table()])
