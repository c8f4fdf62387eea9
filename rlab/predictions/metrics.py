"""Figures about all samples together: average precision of boxes as COCO computes it, IoU of maps, error of numbers.

Each is a function of rows of samples, so that an interval can draw samples again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlab.predictions.boxes import Boxes, TargetBoxes, overlaps
from rlab.predictions.kinds import Prediction

HALF, COCO = (0.5,), tuple(0.5 + 0.05 * step for step in range(10))  # overlaps at which a box is right
RECALLS = np.linspace(0, 1, 101)
Rows = NDArray[np.int64]
Figure = Callable[[Rows], float]  # the numbers of samples, perhaps repeated -> the figure of these


@dataclass(frozen=True)
class _Found:
    """The boxes of one class: the sample and score of each, and whether it is right at each overlap."""

    sample: Rows  # (k,)
    score: NDArray[np.float64]  # (k,)
    right: NDArray[np.bool_]  # (overlaps, k)
    objects: Rows  # (n,) number of true objects in each sample


def mean_precision(rows: Tensor, targets: Tensor, limits: Sequence[float] = HALF) -> Figure:
    """The mean over classes and overlaps of the average precision, with precision read at 101 levels of recall.

    Lin et al. 2014, https://cocodataset.org/#detection-eval.
    """
    boxes, objects = Boxes.decode(rows.nan_to_num()), TargetBoxes.decode(targets)
    classes = objects.label[objects.there].unique().tolist()
    found = [_match(boxes, objects, label, limits) for label in classes]

    def figure(samples: Rows) -> float:
        times = np.bincount(samples, minlength=len(rows))
        each = [value for one in found for value in _precision(one, times)]
        return float(np.mean(each)) if each else float("nan")

    return figure


def _match(boxes: Boxes, objects: TargetBoxes, label: int, limits: Sequence[float]) -> _Found:
    """Give each box of a class, by falling score, the free object that it overlaps most."""
    there, wanted = (boxes.label == label) & (boxes.score > 0), objects.label == label
    near = overlaps(boxes.xyxy, objects.xyxy).numpy()
    sample, score, right = list[int](), list[float](), list[list[bool]]()
    for row in range(len(there)):
        at, own = there[row].nonzero().flatten().numpy(), wanted[row].nonzero().flatten().numpy()
        used = [np.zeros(len(own), bool) for _ in limits]
        for box in at:
            hits = []
            for taken, limit in zip(used, limits, strict=True):
                free = np.where(taken, -1.0, near[row, box, own])
                best = int(free.argmax()) if len(own) else 0
                hit = bool(len(own) and free[best] >= limit)
                taken[best : best + 1] |= hit
                hits.append(hit)
            right.append(hits)
            sample.append(row)
            score.append(float(boxes.score[row, box]))
    order = np.argsort(-np.array(score, dtype=np.float64), kind="stable")
    flags = np.array(right, bool).reshape(-1, len(limits))[order].T
    return _Found(np.array(sample, np.int64)[order], np.array(score)[order], flags, wanted.sum(1).numpy())


def _precision(found: _Found, times: Rows) -> list[float]:
    """The average precision at each overlap if each sample counts `times` (n,); none if the class has no object then."""
    total, weight = int(found.objects @ times), times[found.sample]
    if not total:
        return []
    values = []
    for right in found.right:
        hits, every = np.cumsum(weight * right), np.cumsum(weight)
        precision = np.maximum.accumulate((hits / np.maximum(every, 1))[::-1])[::-1]
        at = np.searchsorted(hits / total, RECALLS - 1e-12)
        values.append(
            float(np.where(at < len(hits), precision[np.minimum(at, len(hits) - 1)], 0).mean() if len(hits) else 0)
        )
    return values


def mean_iou(rows: Tensor, targets: Tensor) -> Figure:
    """The mean over the classes of the truth of their IoU over all pixels of all samples; ignored pixels do not count."""
    counts = targets >= 0
    classes = targets[counts].unique()
    now = [(rows == label) & counts for label in classes]
    true = [targets == label for label in classes]
    both = np.stack([(a & b).sum(1).numpy() for a, b in zip(now, true, strict=True)])  # (classes, n)
    either = np.stack([(a | b).sum(1).numpy() for a, b in zip(now, true, strict=True)])
    there = np.stack([b.sum(1).numpy() for b in true])

    def figure(samples: Rows) -> float:
        kept = there[:, samples].sum(1) > 0
        values = both[kept][:, samples].sum(1) / either[kept][:, samples].sum(1)
        return float(values.mean()) if len(values) else float("nan")

    return figure


def mean_error(rows: Tensor, targets: Tensor) -> Figure:
    """The mean absolute error of numbers (n, k)."""
    error = (rows - targets).abs().mean(1).numpy()
    return lambda samples: float(error[samples].mean())


FIGURES: dict[str, tuple[Prediction, Callable[[Tensor, Tensor], Figure]]] = {
    "map50": ("boxes", mean_precision),
    "map": ("boxes", lambda rows, targets: mean_precision(rows, targets, COCO)),
    "miou": ("map", mean_iou),
    "mae": ("numbers", mean_error),
}
