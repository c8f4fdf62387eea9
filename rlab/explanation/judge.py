"""Runs several methods on one victim and scores their maps."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.explanation.base import RULE, Method, hiding_bank, refuse_unscored
from rlab.explanation.compared import MethodComparison, ScoredMethod
from rlab.explanation.scores import STEPS, against_truth, area, curves, rank_correlation
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim


@dataclass(frozen=True)
class MethodJudge:
    """Which scores to compute, and how finely."""

    steps: int = STEPS
    stability: bool = True  # runs every method twice
    sanity: bool = True  # runs every method once more, on shuffled weights
    checked: int | None = None  # number of samples for these two (None: all)
    blank: str | None = None  # filter that hides points (None: a blur of a sixteenth of the longest axis)
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
        shuffled = shuffle_weights(victim, seed) if self.sanity and isinstance(victim, TorchVictim) else None
        left_out = []
        if batch.masks is None:
            left_out.append("There is no ground truth, so there are no scores for Dice, IoU, pointing game and energy")
        if self.sanity and shuffled is None:
            left_out.append(f"The weights of a {type(victim).__name__} cannot be shuffled, so there is no sanity check")
        judged = {}
        for name, method in named.items():
            judged[name] = self._judge(victim, batch, method, labels, seed, shuffled)
            self.tell(name, judged[name])
        copy_rows = 0 if shuffled is None else shuffled.rows.total()
        return MethodComparison(batch, judged, tuple(left_out), seed, copy_rows)

    def most(self, method: Method, size: tuple[int, ...]) -> int | None:
        """The largest number of rows per sample for the method's map and scores, without those of the shuffled copy; None if
        it depends on the model's layers."""
        rows = method.most(size)
        return None if rows is None else rows * (1 + self.stability) + 2 * (self.steps + 1)

    def _judge(
        self, victim: Victim, batch: Batch, method: Method, labels: Tensor | None, seed: int, shuffled: Victim | None
    ) -> ScoredMethod:
        explanation = method(victim, batch, labels, seed, self.rule)
        scores = {"queries": explanation.queries.double()}
        if batch.masks is not None:
            scores |= against_truth(explanation, batch.masks)
        x0 = batch.x.to(victim.device)
        hidden = hiding_bank(x0, batch.bounds, [0] * len(batch), self.blank)[:, 1]
        for name, insert in (("deletion", False), ("insertion", True)):
            scores[name] = area(curves(victim, x0, hidden, explanation.maps, explanation.labels, self.steps, insert))

        def correlation(other: Victim, labels: Tensor | None, seed: int) -> Tensor:
            """(n,) rank correlation with the maps of another run; NaN for samples that do not run again."""
            some = slice(0, len(batch) if self.checked is None else self.checked)
            again = method(other, batch[some], None if labels is None else labels[some], seed, self.rule)
            values = torch.full((len(batch),), math.nan, dtype=torch.float64)
            values[some] = rank_correlation(explanation.maps[some], again.maps)
            return values

        if self.stability:
            scores["stability"] = correlation(victim, labels, seed + 1)
        if shuffled is not None:
            scores["sanity"] = correlation(shuffled, None, seed)
        return ScoredMethod(explanation, scores)


def shuffle_weights(victim: TorchVictim, seed: int) -> TorchVictim:
    """A copy of the victim with the entries of each parameter shuffled (after Adebayo et al. 2018, arXiv 1810.03292)."""
    rng = torch.Generator().manual_seed(seed)
    other = copy.copy(victim)
    other.model = copy.deepcopy(victim.model)
    other.rows = type(victim.rows)()
    with torch.no_grad():
        for parameter in other.model.parameters():
            order = torch.randperm(parameter.numel(), generator=rng).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return other
