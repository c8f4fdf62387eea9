"""Figures about all samples together: average precision of boxes as COCO computes it, IoU of maps, error of numbers.

Each is a function of rows of samples, so that an interval can draw samples again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
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
    """The boxes of a class in all samples."""
    there, wanted = (boxes.label == label) & (boxes.score > 0), objects.label == label
    near = overlaps(boxes.xyxy, objects.xyxy)
    each = [_hits(near[row][there[row]][:, wanted[row]].numpy(), limits) for row in range(len(near))]
    sample, score = there.nonzero()[:, 0].numpy(), boxes.score[there].double().numpy()
    order = np.argsort(-score, kind="stable")
    return _Found(sample[order], score[order], np.concatenate(each, 1)[:, order], wanted.sum(1).numpy())


def _hits(near: NDArray[np.float32], limits: Sequence[float]) -> NDArray[np.bool_]:
    """Overlaps of boxes, by falling score, with objects (k, m) -> whether each box is right at each limit (limits, k).

    A box gets the free object that it overlaps most.
    """
    right = np.zeros((len(limits), len(near)), bool)
    for hits, limit in zip(right, limits, strict=True):
        free = near.copy()
        for box in range(len(near) if near.size else 0):
            best = int(free[box].argmax())
            if free[box, best] >= limit:
                hits[box], free[:, best] = True, -1.0
    return right


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
        values.append(float(np.append(precision, 0.0)[at].mean()))  # 0 at a recall that is never reached
    return values


def average_precision(boxes: Boxes, objects: TargetBoxes, overlap: float) -> Tensor:
    """(n,): of each image, the mean over the classes of its objects; 0 for an image without objects.

    It is the area under precision by recall, with the best precision at the same or a higher recall.
    """
    near, values = overlaps(boxes.xyxy, objects.xyxy), torch.zeros(len(boxes.score))
    for row, own in enumerate(objects.label):
        each = []
        for label in own[objects.there[row]].unique():
            found = (boxes.label[row] == label) & (boxes.score[row] > 0)
            covered = near[row][found][:, own == label].cpu().numpy()
            hits = _hits(covered, (overlap,))[0]
            precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
            later = np.maximum.accumulate(precision[::-1])[::-1]
            each.append(float((later * hits).sum() / covered.shape[1]))
        values[row] = float(np.mean(each)) if each else 0.0
    return values.to(boxes.score)


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
