"""Several methods on one victim and the same samples: maps, scores, stability, a sanity check, and one table."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from rlab.comparison.figures import Estimate, estimate
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation, Method
from rlab.explanation.blank import blank_bank
from rlab.explanation.scores import STEPS, against_truth, area, curves, rank_correlation
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

LOWER_IS_BETTER = frozenset({"deletion", "deletion_grey", "sanity", "queries"})
HEADINGS = {
    "queries": "queries",
    "dice": "Dice",
    "iou": "IoU",
    "pointing": "pointing",
    "energy": "energy",
    "deletion": "deletion",
    "insertion": "insertion",
    "stability": "stability",
    "sanity": "sanity",
}
RULES = (
    "Dice, IoU: the map cut by the rule against the ground truth; pointing: its highest point lies inside; energy: the share "
    "of the map inside. Deletion (lower is better), insertion: area under the class's probability as the highest points "
    "are blurred, or shown. Stability: rank correlation of two seeds. Sanity: rank correlation with the map of the same model "
    "with shuffled weights; near 1 means that the map does not depend on the model."
)


@dataclass(frozen=True)
class Judged:
    """One method's maps and its scores (n,) by name."""

    explanation: Explanation
    scores: Mapping[str, Tensor]

    def mean(self, name: str, seed: int = 0) -> Estimate:
        """Over the samples that have it, with its bootstrap interval; NaN where the score was left out."""
        values = self.scores[name].double().numpy() if name in self.scores else np.empty(0)
        values = values[np.isfinite(values)]
        return estimate(lambda rows: values[rows].mean(1), len(values), seed)


@dataclass(frozen=True)
class MethodComparison:
    """Judged methods by name, in the order they were run; `left_out` says which scores are missing and why."""

    batch: Batch
    judged: Mapping[str, Judged]
    left_out: tuple[str, ...] = ()
    seed: int = 0

    def difference(self, one: str, other: str, score: str) -> Estimate:
        """The mean of one minus other over the same samples, with its paired bootstrap interval."""
        gap = (self.judged[one].scores[score] - self.judged[other].scores[score]).double().numpy()
        return estimate(lambda rows: gap[rows].mean(1), len(gap), self.seed)

    @property
    def names(self) -> list[str]:
        """Scores that any method has, in the table's order."""
        return [name for name in HEADINGS if any(name in one.scores for one in self.judged.values())]

    def table(self) -> Table:
        table = Table()
        table.add_column("method", overflow="fold")
        for name in self.names:
            table.add_column(HEADINGS[name], justify="right")
        for method, one in self.judged.items():  # intervals are on the gallery page: they would not fit a terminal
            cells = [_cell(name, one.mean(name, self.seed)) for name in self.names]
            table.add_row(method + ("\n(white box)" if one.explanation.gradients else ""), *cells)
        return table


def _cell(name: str, e: Estimate) -> str:
    if math.isnan(e.value):
        return "–"
    return f"{e.value:,.0f}" if name == "queries" else f"{e.value:.3f}"


@dataclass(frozen=True)
class Judge:
    """What to score, and how finely."""

    truth: Tensor | None = None  # (n, *size) bool
    steps: int = STEPS
    stability: bool = True  # runs every method twice
    sanity: bool = True  # runs every method once more, on shuffled weights
    checked: int | None = None  # only so many samples are run again for the two
    blank: str | None = None  # the filter that hides points; None is a Gaussian blur of a sixteenth of the longest axis
    rule: str = "otsu"
    tell: Callable[[str, Judged], None] = field(default=lambda name, one: None)

    def __call__(
        self,
        victim: Victim,
        batch: Batch,
        methods: Sequence[Method] | Mapping[str, Method],
        labels: Tensor | None = None,
        seed: int = 0,
    ) -> MethodComparison:
        """Every method on the same samples; the classes explained are those of `labels`, or the predicted ones."""
        if not methods:
            raise InputError("expected at least one method to judge, got none")
        self._check_truth(batch)
        shuffled = shuffle_weights(victim, seed) if self.sanity and isinstance(victim, TorchVictim) else None
        judged = {}
        named = methods if isinstance(methods, Mapping) else {method.name: method for method in methods}
        for name, method in named.items():
            judged[name] = self._judge(victim, batch, method, labels, seed, shuffled)
            self.tell(name, judged[name])
        return MethodComparison(batch, judged, self._left_out(victim, batch), seed)

    def _judge(
        self, victim: Victim, batch: Batch, method: Method, labels: Tensor | None, seed: int, shuffled: Victim | None
    ) -> Judged:
        one = method(victim, batch, labels, seed, self.rule)
        scores = {"queries": one.queries.double()}
        truth = batch.masks if self.truth is None else self.truth
        if truth is not None:
            scores |= against_truth(one, truth)
        scores |= faithfulness(victim, batch, one, self.steps, self.blank)
        if self.stability:
            scores["stability"] = self._again(victim, batch, method, labels, seed + 1, one)
        if shuffled is not None:
            scores["sanity"] = self._again(shuffled, batch, method, None, seed, one)
        return Judged(one, scores)

    def _again(
        self, victim: Victim, batch: Batch, method: Method, labels: Tensor | None, seed: int, one: Explanation
    ) -> Tensor:
        """(n,) rank correlation of the map with another run's; NaN for samples that are not run again."""
        some = slice(0, len(batch) if self.checked is None else self.checked)
        other = method(victim, batch[some], None if labels is None else labels[some], seed, self.rule)
        found = torch.full((len(batch),), math.nan, dtype=torch.float64)
        found[some] = rank_correlation(one.maps[some], other.maps)
        return found

    def _check_truth(self, batch: Batch) -> None:
        want = (len(batch), *batch.size)
        if self.truth is not None and self.truth.shape != want:
            raise InputError(
                f"expected ground-truth masks of shape {want}, got {tuple(self.truth.shape)}: "
                f"resize them as the inputs were, or leave them out"
            )

    def _left_out(self, victim: Victim, batch: Batch) -> tuple[str, ...]:
        said = []
        if self.truth is None and batch.masks is None:
            said.append("no ground truth: Dice, IoU, pointing game and energy are left out")
        if self.sanity and not isinstance(victim, TorchVictim):
            said.append(f"the weights of a {type(victim).__name__} cannot be shuffled: the sanity check is left out")
        return tuple(said)


def faithfulness(
    victim: Victim, batch: Batch, one: Explanation, steps: int = STEPS, blank: str | None = None
) -> dict[str, Tensor]:
    """Deletion and insertion (n,); their queries are counted in the victim's phase 'score', not as the map's."""
    x0 = batch.x.to(victim.device)
    hidden = blank_bank(x0, batch.bounds, [0] * len(batch), blank)[:, 1]
    found = {}
    for name, insert in (("deletion", False), ("insertion", True)):
        found[name] = area(curves(victim, x0, hidden, one.maps, one.labels, steps, insert))
    return found


def shuffle_weights(victim: TorchVictim, seed: int) -> TorchVictim:
    """The victim with every parameter's entries in random places (after Adebayo et al. 2018, arXiv 1810.03292)."""
    draw = torch.Generator().manual_seed(seed)
    other = copy.copy(victim)
    other.model = copy.deepcopy(victim.model)
    other.rows = type(victim.rows)()
    with torch.no_grad():
        for parameter in other.model.parameters():
            order = torch.randperm(parameter.numel(), generator=draw).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return other
