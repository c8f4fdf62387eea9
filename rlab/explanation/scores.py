"""Scores of maps, and methods compared by them.

A map is scored against ground truth, by hiding or showing its highest points first, and by its stability.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.explanation.base import ROWS, RULE, SCORE, Explanation, Method, refuse_unscored
from rlab.explanation.maps import each, hiding_bank, ranks, to_unit
from rlab.explanation.viewers import legend, sample_viewers
from rlab.present.notebook import blocks_html
from rlab.present.page import Block, Section, Text
from rlab.present.table import Table
from rlab.stats import Estimate, mean_estimate
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

STEPS = 50  # for insertion and deletion
SCORES = ("queries", "dice", "iou", "pointing", "energy", "deletion", "insertion", "stability", "sanity")
RULES = (
    "Dice, IoU: overlap of the mask and the ground truth. Pointing: whether the map's highest point lies inside the ground "
    "truth. Energy: the share of the map inside. Deletion (lower is better) and insertion: area under the class's probability "
    "as the highest points are blurred, or shown. Stability: rank correlation between two seeds. Sanity: rank correlation with "
    "the map of the same model with shuffled weights; near 1 means that the map does not depend on the model. Queries: rows per "
    "sample that reached the model for the map, including the clean prediction but not the rows for scores."
)


def overlap(mask: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Dice and IoU (n,) of masks (n, *size) bool; two empty masks agree."""
    a, b = mask.flatten(1).double(), truth.flatten(1).double()
    both, area = (a * b).sum(1), a.sum(1) + b.sum(1)
    empty = area == 0
    dice = torch.where(empty, 1.0, 2 * both / area.clamp(min=1))
    iou = torch.where(empty, 1.0, both / (area - both).clamp(min=1))
    return {"dice": dice, "iou": iou}


def pointing(maps: Tensor, truth: Tensor) -> Tensor:
    """(n,) 1 if the highest point lies in the truth; the share inside if several points are highest."""
    values, inside = maps.flatten(1), truth.flatten(1).double()
    top = (values == values.amax(1, keepdim=True)).double()
    return (top * inside).sum(1) / top.sum(1)


def energy(maps: Tensor, truth: Tensor) -> Tensor:
    """(n,) share of the map, scaled to [0, 1], inside the truth."""
    values = to_unit(maps).flatten(1).double()
    total = values.sum(1)
    return torch.where(total > 0, (values * truth.flatten(1)).sum(1) / total.clamp(min=1e-12), 0.0)


def against_truth(explanation: Explanation, truth: Tensor) -> dict[str, Tensor]:
    """Dice, IoU, pointing game and energy, each (n,)."""
    maps = explanation.maps
    if truth.shape != maps.shape:
        shapes = f"expected ground-truth masks of shape {tuple(maps.shape)}, got {tuple(truth.shape)}"
        raise DataError(f"{shapes}: resize them like the inputs, or omit them")
    return {**overlap(explanation.mask, truth), "pointing": pointing(maps, truth), "energy": energy(maps, truth)}


def curves(
    victim: Victim, x0: Tensor, blank: Tensor, maps: Tensor, labels: Tensor, steps: int = STEPS, insert: bool = False
) -> Tensor:
    """(n, steps + 1) the class's probability as more of the highest points are hidden, or shown.

    The steps + 1 queries per sample count in the victim's phase 'score', not as the map's.
    """
    count, rank = maps[0].numel(), ranks(maps.to(x0.device))
    probability = torch.empty(len(x0), steps + 1)
    limits = torch.arange(steps + 1, device=x0.device) * count / steps
    start, end = (blank, x0) if insert else (x0, blank)
    for rows in torch.arange(len(x0), device=x0.device).split(max(1, ROWS // (steps + 1))):
        whose = rows.repeat_interleave(steps + 1)
        limit = each(limits.repeat(len(rows)), maps)
        x = torch.where((rank[whose] < limit)[:, None], end[whose], start[whose])
        scores = victim(x, SCORE).gather(1, labels.to(x0.device)[whose][:, None])
        probability[rows.cpu()] = victim.probabilities(scores).view(len(rows), -1).cpu()
    return probability


def area(curve: Tensor) -> Tensor:
    """(n, steps + 1) -> (n,): the area below the curve, over [0, 1]."""
    return torch.trapezoid(curve.double(), dx=1 / (curve.shape[1] - 1), dim=1)


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Spearman's correlation of maps (n, *size), per sample -> (n,); 0 if a map is flat."""
    a, b = (torch.from_numpy(rankdata(values.flatten(1).cpu().numpy(), axis=1)) for values in (maps, others))
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    below = a.norm(dim=1) * b.norm(dim=1)
    return torch.where(below > 0, (a * b).sum(1) / below.clamp(min=1e-12), 0.0)


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
    head = [{"dice": "Dice", "iou": "IoU"}.get(name, name) for name in names]
    return Table(["method", *head], rows, "Means and 95% bootstrap intervals" if intervals else "")


@dataclass(frozen=True)
class ScoredMethod:
    """The maps of one method and its scores (n,) by name."""

    explanation: Explanation
    scores: Mapping[str, Tensor]

    def mean(self, name: str, seed: int = 0) -> Estimate:
        return mean_of(self.scores, name, seed)


@dataclass(frozen=True)
class MethodComparison:
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


@dataclass(frozen=True)
class MethodJudge:
    """Which scores to compute, and how finely."""

    steps: int = STEPS
    checks: bool = True  # runs every method twice for stability, and on shuffled weights as a sanity check
    checked: int | None = None  # number of samples for these two (None: all)
    rule: str = RULE
    tell: Callable[[str, ScoredMethod], None] = field(default=lambda name, method: None)

    def __call__(
        self,
        victim: Victim,
        batch: Batch,
        methods: Sequence[Method] | Mapping[str, Method],
        labels: Tensor | None = None,
        seed: int = 0,
    ) -> MethodComparison:
        """Run every method on the same samples; `labels` (n,) are the classes to explain (default: the predicted ones)."""
        if not methods:
            raise OptionError("expected at least one method to score, got none")
        named = methods if isinstance(methods, Mapping) else {method.name: method for method in methods}
        refuse_unscored(named.values())
        before = victim.rows.total()
        shuffled = shuffle_weights(victim, seed) if self.checks and isinstance(victim, TorchVictim) else None
        left_out = []
        if batch.masks is None:
            left_out.append("There is no ground truth, so there are no scores for Dice, IoU, pointing game and energy")
        if self.checks and shuffled is None:
            left_out.append(f"The weights of a {type(victim).__name__} cannot be shuffled, so there is no sanity check")
        judged = {}
        for name, method in named.items():
            judged[name] = self._judge(victim, batch, method, labels, seed, shuffled)
            self.tell(name, judged[name])
        copy_rows = 0 if shuffled is None else shuffled.rows.total()
        return MethodComparison(batch, judged, tuple(left_out), seed, victim.rows.total() - before, copy_rows)

    def most(self, method: Method, size: tuple[int, ...]) -> int | None:
        """The largest number of rows per sample for the method's map and scores, without those of the shuffled copy; None if
        it depends on the model's layers."""
        rows = method.most(size)
        return None if rows is None else rows * (1 + self.checks) + 2 * (self.steps + 1)

    def _judge(
        self, victim: Victim, batch: Batch, method: Method, labels: Tensor | None, seed: int, shuffled: Victim | None
    ) -> ScoredMethod:
        explanation = method(victim, batch, labels, seed, self.rule)
        scores = {"queries": explanation.queries.double()}
        if batch.masks is not None:
            scores |= against_truth(explanation, batch.masks)
        x0 = batch.x.to(victim.device)
        hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
        for name, insert in (("deletion", False), ("insertion", True)):
            scores[name] = area(curves(victim, x0, hidden, explanation.maps, explanation.labels, self.steps, insert))

        def correlation(other: Victim, labels: Tensor | None, seed: int) -> Tensor:
            """(n,) rank correlation with the maps of another run; NaN for samples that do not run again."""
            some = slice(0, len(batch) if self.checked is None else self.checked)
            again = method(other, batch[some], None if labels is None else labels[some], seed, self.rule)
            values = torch.full((len(batch),), math.nan, dtype=torch.float64)
            values[some] = rank_correlation(explanation.maps[some], again.maps)
            return values

        if self.checks:
            scores["stability"] = correlation(victim, labels, seed + 1)
        if shuffled is not None:
            scores["sanity"] = correlation(shuffled, None, seed)
        return ScoredMethod(explanation, scores)


def shuffle_weights(victim: TorchVictim, seed: int) -> TorchVictim:
    """A copy of the victim with the entries of each parameter shuffled (after Adebayo et al. 2018, arXiv 1810.03292)."""
    rng = torch.Generator().manual_seed(seed)
    other = copy.copy(victim)
    other.model, other.rows = copy.deepcopy(victim.model), Counter()
    with torch.no_grad():
        for parameter in other.model.parameters():
            order = torch.randperm(parameter.numel(), generator=rng).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return other
