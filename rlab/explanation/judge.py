"""Several methods on one victim and the same samples: maps, scores, stability, a sanity check, and one table."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation, Method
from rlab.explanation.hiding import hiding_bank
from rlab.explanation.scores import STEPS, against_truth, area, curves, rank_correlation
from rlab.present.table import Table
from rlab.stats import Estimate, mean_estimate
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

SCORES = ("queries", "dice", "iou", "pointing", "energy", "deletion", "insertion", "stability", "sanity")
RULES = (
    "Dice, IoU: the map cut by the rule against the ground truth; pointing: its highest point lies inside; energy: the share "
    "of the map inside. Deletion (lower is better), insertion: area under the class's probability as the highest points "
    "are blurred, or shown. Stability: rank correlation of two seeds. Sanity: rank correlation with the map of the same model "
    "with shuffled weights; near 1 means that the map does not depend on the model."
)


@dataclass(frozen=True)
class ScoredMethod:
    """One method's maps and its scores (n,) by name."""

    explanation: Explanation
    scores: Mapping[str, Tensor]

    def mean(self, name: str, seed: int = 0) -> Estimate:
        """Over the samples that have it, with its bootstrap interval; NaN where the score was left out."""
        return mean_of(self.scores, name, seed)


@dataclass(frozen=True)
class MethodComparison:
    """Scored methods by name, in the order they were run; `left_out` says which scores are missing and why."""

    batch: Batch
    judged: Mapping[str, ScoredMethod]
    left_out: tuple[str, ...] = ()
    seed: int = 0

    def difference(self, method: str, other: str, score: str) -> Estimate:
        """The mean of one minus other over the same samples, with its paired bootstrap interval."""
        gap = self.judged[method].scores[score] - self.judged[other].scores[score]
        return mean_estimate(gap.double().numpy(), self.seed)

    @property
    def names(self) -> list[str]:
        """Scores that any method has, in the table's order."""
        return names_of({name: method.scores for name, method in self.judged.items()})

    def table(self, intervals: bool = False) -> Table:
        """Means; with their intervals it would not fit a terminal."""
        shown = {name: name + "\n(white box)" * method.explanation.gradients for name, method in self.judged.items()}
        return score_table({shown[name]: method.scores for name, method in self.judged.items()}, self.seed, intervals)


def mean_of(scores: Mapping[str, Tensor], name: str, seed: int = 0) -> Estimate:
    """Over the samples (n,) that have the score; NaN where no one has it."""
    return mean_estimate(scores[name].double().numpy() if name in scores else np.empty(0), seed)


def names_of(scores: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
    return [name for name in SCORES if any(name in own for own in scores.values())]


def score_table(scores: Mapping[str, Mapping[str, Tensor]], seed: int = 0, intervals: bool = False) -> Table:
    """Scores (n,) by method and name -> one row a method; queries are told without an interval."""
    names, rows = names_of(scores), []
    for method, own in scores.items():
        means = {name: mean_of(own, name, seed) for name in names}
        cells = [mean if intervals and name != "queries" else mean.value for name, mean in means.items()]
        rows.append([method, *cells])
    head = [{"dice": "Dice", "iou": "IoU"}.get(name, name) for name in names]
    return Table(["method", *head], rows, "Means and 95% bootstrap intervals" if intervals else "")


@dataclass(frozen=True)
class MethodJudge:
    """What to score, and how finely."""

    steps: int = STEPS
    stability: bool = True  # runs every method twice
    sanity: bool = True  # runs every method once more, on shuffled weights
    checked: int | None = None  # only so many samples are run again for the two
    blank: str | None = None  # the filter that hides points; None is a Gaussian blur of a sixteenth of the longest axis
    rule: str = "otsu"
    tell: Callable[[str, ScoredMethod], None] = field(default=lambda name, method: None)

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
        shuffled = shuffle_weights(victim, seed) if self.sanity and isinstance(victim, TorchVictim) else None
        left_out = []
        if batch.masks is None:
            left_out.append("no ground truth: Dice, IoU, pointing game and energy are left out")
        if self.sanity and shuffled is None:
            kind = type(victim).__name__
            left_out.append(f"the weights of a {kind} cannot be shuffled: the sanity check is left out")
        judged = {}
        named = methods if isinstance(methods, Mapping) else {method.name: method for method in methods}
        for name, method in named.items():
            judged[name] = self._judge(victim, batch, method, labels, seed, shuffled)
            self.tell(name, judged[name])
        return MethodComparison(batch, judged, tuple(left_out), seed)

    def _judge(
        self, victim: Victim, batch: Batch, method: Method, labels: Tensor | None, seed: int, shuffled: Victim | None
    ) -> ScoredMethod:
        explanation = method(victim, batch, labels, seed, self.rule)
        scores = {"queries": explanation.queries.double()}
        if batch.masks is not None:
            scores |= against_truth(explanation, batch.masks)
        scores |= faithfulness(victim, batch, explanation, self.steps, self.blank)

        def correlation(asked: Victim, labels: Tensor | None, seed: int) -> Tensor:
            """(n,) rank correlation of the map with another run's; NaN for samples that are not run again."""
            some = slice(0, len(batch) if self.checked is None else self.checked)
            other = method(asked, batch[some], None if labels is None else labels[some], seed, self.rule)
            values = torch.full((len(batch),), math.nan, dtype=torch.float64)
            values[some] = rank_correlation(explanation.maps[some], other.maps)
            return values

        if self.stability:
            scores["stability"] = correlation(victim, labels, seed + 1)
        if shuffled is not None:
            scores["sanity"] = correlation(shuffled, None, seed)
        return ScoredMethod(explanation, scores)


def faithfulness(
    victim: Victim, batch: Batch, explanation: Explanation, steps: int = STEPS, blank: str | None = None
) -> dict[str, Tensor]:
    """Deletion and insertion (n,); their queries are counted in the victim's phase 'score', not as the map's."""
    x0 = batch.x.to(victim.device)
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch), blank)[:, 1]
    return {
        name: area(curves(victim, x0, hidden, explanation.maps, explanation.labels, steps, insert))
        for name, insert in (("deletion", False), ("insertion", True))
    }


def shuffle_weights(victim: TorchVictim, seed: int) -> TorchVictim:
    """The victim with every parameter's entries in random places (after Adebayo et al. 2018, arXiv 1810.03292)."""
    rng = torch.Generator().manual_seed(seed)
    other = copy.copy(victim)
    other.model = copy.deepcopy(victim.model)
    other.rows = type(victim.rows)()
    with torch.no_grad():
        for parameter in other.model.parameters():
            order = torch.randperm(parameter.numel(), generator=rng).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return other
