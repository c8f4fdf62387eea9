"""Average precision of the boxes of single images."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.predictions.boxes import Boxes, TargetBoxes, overlaps


def average_precision(boxes: Boxes, objects: TargetBoxes, overlap: float) -> Tensor:
    """(n,): of each image, the mean over the classes of its objects; 0 for an image without objects."""
    covered = overlaps(boxes.xyxy, objects.xyxy)
    rows = [_of_image(boxes, objects, covered[row], row, overlap) for row in range(len(covered))]
    return torch.tensor(rows, device=boxes.score.device, dtype=boxes.score.dtype)


def _of_image(boxes: Boxes, objects: TargetBoxes, covered: Tensor, row: int, overlap: float) -> float:
    classes = objects.label[row][objects.there[row]].unique().tolist()
    each = []
    for label in classes:
        found = ((boxes.label[row] == label) & (boxes.score[row] > 0)).nonzero().flatten()
        wanted = (objects.label[row] == label).nonzero().flatten()
        each.append(_of_class(covered[found][:, wanted], overlap))
    return sum(each) / len(each) if each else 0.0


def _of_class(covered: Tensor, overlap: float) -> float:
    """Boxes by falling score against objects (k, m): the area under precision by recall, each box taking its best free object."""
    free, hits = torch.ones(covered.shape[1], dtype=torch.bool, device=covered.device), []
    for row in covered:
        value, at = torch.where(free, row, -1.0).max(0)
        hits.append(bool(value >= overlap))
        if hits[-1]:
            free[at] = False
    hit = torch.tensor(hits, dtype=torch.float32)
    if not hit.any():
        return 0.0
    precision = hit.cumsum(0) / torch.arange(1, len(hit) + 1)
    best_later = precision.flip(0).cummax(0).values.flip(0)
    return float((best_later * hit).sum() / covered.shape[1])
