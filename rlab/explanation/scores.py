"""Scores of maps: against ground truth, by hiding or showing their highest points first, and by stability."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from rlab.errors import DataError
from rlab.explanation.base import ROWS, SCORE, Explanation
from rlab.explanation.maps import each, to_unit
from rlab.present.table import Table
from rlab.stats import Estimate, mean_estimate
from rlab.victims.base import Victim

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


def ranks(maps: Tensor) -> Tensor:
    """(n, *size) -> (n, *size): 0 for the highest point; the earlier point wins ties."""
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, rank).view_as(maps)


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
