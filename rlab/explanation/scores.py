"""How good maps are: against ground truth, and by what happens when their highest points are hidden or shown first."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.errors import InputError
from rlab.explanation.base import SCORE, Explanation
from rlab.explanation.maps import to_unit
from rlab.victims.base import Victim

STEPS = 50  # of insertion and deletion
ROWS = 512


def overlap(mask: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Dice and IoU (n,) of masks (n, *size) bool; two empty masks agree."""
    a, b = mask.flatten(1).double(), truth.flatten(1).double()
    both, area = (a * b).sum(1), a.sum(1) + b.sum(1)
    empty = area == 0
    dice = torch.where(empty, 1.0, 2 * both / area.clamp(min=1))
    iou = torch.where(empty, 1.0, both / (area - both).clamp(min=1))
    return {"dice": dice, "iou": iou}


def pointing(maps: Tensor, truth: Tensor) -> Tensor:
    """(n,) 1 where the highest point lies in the truth, by its share where several are highest."""
    values, inside = maps.flatten(1), truth.flatten(1).double()
    top = (values == values.amax(1, keepdim=True)).double()
    return (top * inside).sum(1) / top.sum(1)


def energy(maps: Tensor, truth: Tensor) -> Tensor:
    """(n,) the share of the map, scaled to [0, 1], that lies in the truth."""
    values = to_unit(maps).flatten(1).double()
    total = values.sum(1)
    return torch.where(total > 0, (values * truth.flatten(1)).sum(1) / total.clamp(min=1e-12), 0.0)


def against_truth(explanation: Explanation, truth: Tensor) -> dict[str, Tensor]:
    """Dice, IoU, pointing game and energy inside, each (n,)."""
    maps = explanation.maps
    if truth.shape != maps.shape:
        raise InputError(
            f"expected ground-truth masks of shape {tuple(maps.shape)}, got {tuple(truth.shape)}: "
            f"resize them as the inputs were, or leave them out"
        )
    return {**overlap(explanation.mask, truth), "pointing": pointing(maps, truth), "energy": energy(maps, truth)}


def ranks(maps: Tensor) -> Tensor:
    """(n, *size) -> (n, *size): 0 for the highest point; ties by place."""
    order = maps.flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, rank).view_as(maps)


def curves(
    victim: Victim, x0: Tensor, blank: Tensor, maps: Tensor, labels: Tensor, steps: int = STEPS, insert: bool = False
) -> Tensor:
    """(n, steps + 1) the class's probability as more of the highest points is hidden, or shown; steps + 1 queries each."""
    count, rank = maps[0].numel(), ranks(maps.to(x0.device))
    probability = torch.empty(len(x0), steps + 1)
    limits = torch.arange(steps + 1, device=x0.device) * count / steps
    start, end = (blank, x0) if insert else (x0, blank)
    at_once = max(1, ROWS // (steps + 1))
    for rows in torch.arange(len(x0), device=x0.device).split(at_once):
        whose = rows.repeat_interleave(steps + 1)
        limit = limits.repeat(len(rows)).view(-1, *(1,) * (maps.dim() - 1))
        x = torch.where((rank[whose] < limit)[:, None], end[whose], start[whose])
        scores = victim(x, SCORE).gather(1, labels.to(x0.device)[whose][:, None])
        probability[rows.cpu()] = victim.probabilities(scores).view(len(rows), -1).cpu()
    return probability


def area(curve: Tensor) -> Tensor:
    """(n, steps + 1) -> (n,): the area beneath, over [0, 1]."""
    return torch.trapezoid(curve.double(), dx=1 / (curve.shape[1] - 1), dim=1)


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Spearman's, sample by sample: maps (n, *size) twice -> (n,); 0 where a map is flat."""
    a, b = _mean_ranks(maps), _mean_ranks(others)
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    below = a.norm(dim=1) * b.norm(dim=1)
    return torch.where(below > 0, (a * b).sum(1) / below.clamp(min=1e-12), 0.0)


def _mean_ranks(maps: Tensor) -> Tensor:
    """(n, points): equal values share their mean rank."""
    rows = []
    for values in maps.flatten(1):
        _, which, count = values.unique(sorted=True, return_inverse=True, return_counts=True)
        last = count.cumsum(0).double()
        rows.append((last - (count - 1) / 2)[which])
    return torch.stack(rows)
