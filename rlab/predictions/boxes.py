"""Boxes of objects as rows of fixed width: those a detector returns, and those that are true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST = 100  # boxes of one answer, as in the metrics of COCO
FLOOR = 0.001  # lowest score of a box
NOBODY = -1  # class of a place without a box
COLUMNS, TARGET_COLUMNS = 6, 5
UNDECODED = "no box of the model overlaps an object by 10%, whatever its class and score"
DECODE = (
    "check the range of its inputs and how its boxes are read (docs/beyond.md); if they are relative to the cells of the "
    "network's grid, decode them as examples/detector.py does"
)
_CANDIDATES = 500  # boxes with the highest scores, among which overlapping ones are removed


@dataclass(frozen=True)
class TargetBoxes:
    """The true objects of n samples; places without an object have class -1."""

    xyxy: Tensor  # (n, m, 4) left, top, right and bottom in pixels
    label: Tensor  # (n, m) int64

    @classmethod
    def of(cls, objects: Sequence[tuple[Tensor, Tensor]]) -> TargetBoxes:
        """Join the boxes (m, 4) and classes (m,) of each sample."""
        most = max(1, *(len(label) for _, label in objects)) if objects else 1
        xyxy = torch.zeros(len(objects), most, 4)
        label = torch.full((len(objects), most), NOBODY)
        for row, (boxes, classes) in enumerate(objects):
            xyxy[row, : len(classes)], label[row, : len(classes)] = boxes.reshape(-1, 4).float(), classes.long()
        return cls(xyxy, label)

    @classmethod
    def decode(cls, rows: Tensor) -> TargetBoxes:
        """Rows (n, 5 m) -> objects."""
        parts = rows.view(len(rows), -1, TARGET_COLUMNS)
        return cls(parts[..., :4], parts[..., 4].long())

    def encode(self) -> Tensor:
        """Objects -> rows (n, 5 m) float32."""
        return torch.cat([self.xyxy, self.label[..., None].to(self.xyxy.dtype)], 2).flatten(1)

    @property
    def there(self) -> Tensor:
        """(n, m) bool: the places with an object."""
        return self.label != NOBODY

    def only(self, wanted: Tensor) -> TargetBoxes:
        """The objects at the places `wanted` (n, m) bool."""
        return TargetBoxes(self.xyxy, torch.where(wanted, self.label, NOBODY))


@dataclass(frozen=True)
class Boxes:
    """The boxes that a detector returned for n samples, by falling score; places without a box have score 0, class -1."""

    xyxy: Tensor  # (n, m, 4) left, top, right and bottom in pixels
    score: Tensor  # (n, m) in [0, 1]; NaN where the model did not answer
    label: Tensor  # (n, m) int64

    @classmethod
    def of(cls, found: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Boxes:
        """Join the boxes (m, 4), scores (m,) and classes (m,) of each sample; weak ones and those beyond the most are dropped."""
        whole = cls.none(len(found), found[0][1].device if found else torch.device("cpu"))
        for row, (boxes, scores, classes) in enumerate(found):
            order = scores.float().nan_to_num(2.0).argsort(descending=True, stable=True)[:MOST]
            order = order[~(scores[order] < FLOOR)]
            place = slice(len(order))
            whole.xyxy[row, place], whole.score[row, place] = boxes[order].float(), scores[order].float()
            whole.label[row, place] = classes[order].long()
        return whole

    @classmethod
    def none(cls, samples: int, device: torch.device) -> Boxes:
        """No boxes."""
        xyxy, score = torch.zeros(samples, MOST, 4, device=device), torch.zeros(samples, MOST, device=device)
        return cls(xyxy, score, torch.full_like(score, NOBODY, dtype=torch.long))

    @classmethod
    def of_candidates(cls, xyxy: Tensor, scores: Tensor, overlap: float) -> Boxes:
        """Boxes (n, k, 4) with a score for each class (n, k, c); of boxes of a class that overlap more, the best remains."""
        n, k, classes = scores.shape
        some = min(_CANDIDATES, k * classes)
        best, at = scores.float().nan_to_num(2.0).flatten(1).topk(some, 1)  # a score of NaN remains, to be seen
        each, label = xyxy.float().gather(1, (at // classes)[..., None].expand(-1, -1, 4)), at % classes
        score = scores.float().flatten(1).gather(1, at)
        kept = (best >= FLOOR) & remaining(each, label, best, overlap)
        return cls.of([(each[row][kept[row]], score[row][kept[row]], label[row][kept[row]]) for row in range(n)])

    @classmethod
    def decode(cls, rows: Tensor) -> Boxes:
        """Rows (n, 6 m) -> boxes."""
        parts = rows.view(len(rows), -1, COLUMNS)
        return cls(parts[..., :4], parts[..., 4], parts[..., 5].nan_to_num(float(NOBODY)).long())

    def encode(self) -> Tensor:
        """Boxes -> rows (n, 6 m) float32."""
        return torch.cat([self.xyxy, self.score[..., None], self.label[..., None].to(self.score.dtype)], 2).flatten(1)


def all_missed(rows: Tensor, targets: Tensor) -> bool:
    """Whether no box in rows (n, 6 m) overlaps an object, if any, of targets (n, 5 k), as if the boxes were not in pixels."""
    found, objects = Boxes.decode(rows), TargetBoxes.decode(targets)
    shared = overlaps(objects.xyxy, found.xyxy) * objects.there[..., None]
    return bool(objects.there.any() and (shared * (found.score >= FLOOR)[:, None] < 0.1).all())


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Boxes (..., a, 4) and (..., b, 4) -> their intersection over union (..., a, b); 0 for boxes without area."""
    low = torch.maximum(first[..., :, None, :2], second[..., None, :, :2])
    high = torch.minimum(first[..., :, None, 2:], second[..., None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = area(first)[..., :, None] + area(second)[..., None, :] - shared
    return torch.where(union > 0, shared / union.clamp(min=1e-12), 0.0)


def area(boxes: Tensor) -> Tensor:
    """Boxes (..., 4) -> (...)."""
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def remaining(xyxy: Tensor, label: Tensor, score: Tensor, overlap: float) -> Tensor:
    """(n, k) bool: the boxes that remain if, of boxes of one class that overlap more, only the one with the best score does.

    The rows are sorted by falling score. Starting from all boxes, a box goes if one before it that remains covers it; what no
    longer changes is what going through the boxes one by one gives.
    """
    before = torch.ones(score.shape[1], score.shape[1], dtype=torch.bool, device=score.device).triu(1)
    covers = (overlaps(xyxy, xyxy) > overlap) & (label[:, :, None] == label[:, None]) & before
    kept = torch.ones_like(score, dtype=torch.bool)
    while True:
        after = ~(covers & kept[:, :, None]).any(1)
        if torch.equal(after, kept):
            return kept
        kept = after
