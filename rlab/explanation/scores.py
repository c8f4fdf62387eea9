"""Scores of maps, and the judge that compares methods by them.

A map is scored against ground truth, by hiding or showing its highest points first, and by its stability.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from scipy.stats import rankdata
from torch import Tensor

from rlab.core.vectors import wide
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.explanation.base import ROWS, RULE, SCORE, Method
from rlab.explanation.explanation import Explanation, MethodComparison
from rlab.explanation.maps import hiding_bank, ranks, threshold, to_unit
from rlab.explanation.subject import ClassSubject, Subject, find_subject
from rlab.progress import bar, quiet
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

STEPS = 50  # for insertion and deletion


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
    victim: Victim,
    x0: Tensor,
    blank: Tensor,
    maps: Tensor,
    subject: Subject | Tensor,
    steps: int = STEPS,
    insert: bool = False,
) -> Tensor:
    """(n, steps + 1) how much is left of what is explained (a tensor (n,) names classes: their probability) as more of the
    highest points are hidden, or shown.

    The steps + 1 queries per sample count in the victim's phase 'score', not as the map's.
    """
    count, rank = maps[0].numel(), ranks(maps.to(x0.device))
    probability = torch.empty(len(x0), steps + 1)
    limits = torch.arange(steps + 1, device=x0.device) * count / steps
    what = ClassSubject(subject, victim.multilabel) if isinstance(subject, Tensor) else subject
    start, end = (blank, x0) if insert else (x0, blank)
    for rows in torch.arange(len(x0), device=x0.device).split(max(1, ROWS // (steps + 1))):
        whose = rows.repeat_interleave(steps + 1)
        limit = wide(limits.repeat(len(rows)), maps)
        x = torch.where((rank[whose] < limit)[:, None], end[whose], start[whose])
        probability[rows.cpu()] = what.share(victim(x, SCORE), whose).view(len(rows), -1).cpu()
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


@dataclass(frozen=True)
class MethodJudge:
    """Which scores to compute, and how finely."""

    steps: int = STEPS
    checks: bool = True  # runs every method twice for stability, and on shuffled weights as a sanity check
    checked: int | None = None  # number of samples for these two (None: all)
    rule: str = RULE
    scored: bool = True  # otherwise the methods only draw their maps

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
        before, left_out, judged, shuffled = victim.rows.total(), list[str](), dict[str, Explanation](), None
        if self.scored:
            refuse_unscored(named.values())
            shuffled = shuffle_weights(victim, seed) if self.checks and isinstance(victim, TorchVictim) else None
            if batch.masks is None and batch.target == "classes":
                left_out.append(
                    "There is no ground truth, so there are no scores for Dice, IoU, pointing game and energy"
                )
            if self.checks and shuffled is None:
                left_out.append("There is no sanity check, because only the weights of a torch module can be shuffled")
        with bar(len(named), "scoring", unit="methods") if self.scored else nullcontext(quiet) as progress:
            for name, method in named.items():
                made = method(victim, batch, labels, seed, self.rule)
                scores = self._scores(made, victim, method, labels, seed, shuffled) if self.scored else {}
                judged[name] = replace(made, scores=scores)
                progress([name])
        copy_rows = 0 if shuffled is None else shuffled.rows.total()
        if any(each.scores["sanity"].isnan().all() for each in judged.values() if "sanity" in each.scores):
            left_out.append("There is no sanity check, because the copy with shuffled weights finds nothing to explain")
        return MethodComparison(judged, batch, tuple(left_out), seed, victim.rows.total() - before, copy_rows)

    def _scores(
        self,
        explanation: Explanation,
        victim: Victim,
        method: Method,
        labels: Tensor | None,
        seed: int,
        shuffled: Victim | None,
    ) -> dict[str, Tensor]:
        """Each score (n,) of a method's maps."""
        batch, subject, scores = explanation.inputs, explanation.subject, dict[str, Tensor]()
        assert batch is not None  # every method keeps both
        assert subject is not None
        truth = subject.truth(batch.size) if batch.masks is None else batch.masks
        if truth is not None:
            scores |= against_truth(explanation, truth)
            scores["dice_map"] = overlap(threshold(explanation.maps, self.rule), truth)["dice"]
        x0 = batch.x.to(victim.device)
        hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
        for name, insert in (("deletion", False), ("insertion", True)):
            scores[name] = area(curves(victim, x0, hidden, explanation.maps, subject, self.steps, insert))

        def correlation(other: Victim, labels: Tensor | None, seed: int) -> Tensor:
            """(n,) rank correlation with the maps of another run; NaN for samples that do not run again."""
            values = torch.full((len(batch),), math.nan, dtype=torch.float64)
            rows = torch.arange(len(batch))[: self.checked]
            if other is not victim and other.prediction != "classes":  # the copy may find nothing to explain
                rows = rows[find_subject(other, other(x0[: len(rows)], SCORE), batch[: len(rows)], None)[1]]
            if len(rows):
                some = batch[rows.tolist()]
                again = method(other, some, None if labels is None else labels[rows], seed, self.rule)
                values[rows] = rank_correlation(explanation.maps[rows], again.maps).to(values)
            return values

        if self.checks:
            scores["stability"] = correlation(victim, labels, seed + 1)
        if shuffled is not None:
            scores["sanity"] = correlation(shuffled, None, seed)
        return scores


def refuse_unscored(methods: Iterable[Method]) -> None:
    """Refuse methods that cannot be scored."""
    for method in methods:
        if method.flips:
            raise OptionError(f"the method {method.name!r} cannot be scored: compare 'belief' instead")


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
