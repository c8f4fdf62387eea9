"""What is explained in each sample - a class, an object or a class of a map - and how much of it an answer still shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.batched import Rows
from rlab.core.goals.boxes import OVERLAP, SCORE
from rlab.data.batch import Batch
from rlab.errors import ModelError, OptionError
from rlab.predictions.boxes import NOBODY, Boxes, TargetBoxes, overlaps
from rlab.predictions.kinds import WORDS
from rlab.predictions.maps import decode_map
from rlab.victims.base import Victim

LEAST = 1e-6  # the share that stands for nothing, so that its logarithm is finite


@dataclass(frozen=True)
class Subject(Rows, ABC):
    """What is explained in n samples."""

    labels: Tensor  # (n,) the class

    @abstractmethod
    def share(self, answers: Tensor, samples: Tensor) -> Tensor:
        """Answers (m, k) about these samples (m,) -> (m,) in [0, 1]: how much of the subject they show."""

    def score(self, answers: Tensor, samples: Tensor) -> Tensor:
        """The same as a logarithm (m,)."""
        return self.share(answers, samples).clamp(min=LEAST).log()

    def truth(self, size: tuple[int, ...]) -> Tensor | None:
        """(n, *size) bool: where the subject is, if the data say so."""
        return None


@dataclass(frozen=True)
class ClassSubject(Subject):
    """A class; answers are its scores, and it is shown by its probability."""

    several: bool = False  # whether scores are log-odds of several labels

    def share(self, answers: Tensor, samples: Tensor) -> Tensor:
        score = self.score(answers, samples)
        return score.sigmoid() if self.several else score.exp()

    def score(self, answers: Tensor, samples: Tensor) -> Tensor:
        return answers.gather(1, self.labels.to(answers.device)[samples][:, None]).squeeze(1)


@dataclass(frozen=True)
class ObjectSubject(Subject):
    """An object that the model found. It is shown by the best product of overlap and score among boxes of its class.

    Petsiuk et al. 2021 (D-RISE), https://arxiv.org/abs/2006.03204.
    """

    box: Tensor  # (n, 4) that the model found
    target: Tensor | None = None  # (n, 4) the true box, if the data say so

    def share(self, answers: Tensor, samples: Tensor) -> Tensor:
        found, box = Boxes.decode(answers), self.box.to(answers.device)[samples]
        same = found.label == self.labels.to(answers.device)[samples][:, None]
        near = overlaps(box[:, None], found.xyxy)[:, 0]
        return torch.where(same, near * found.score, 0.0).amax(1)

    def truth(self, size: tuple[int, ...]) -> Tensor | None:
        if self.target is None:
            return None
        x1, y1, x2, y2 = (edge[:, None] for edge in self.target.cpu().T)
        down, across = (torch.arange(length) + 0.5 for length in size)
        return ((down >= y1) & (down <= y2))[:, :, None] & ((across >= x1) & (across <= x2))[:, None]


@dataclass(frozen=True)
class RegionSubject(Subject):
    """All points to which the model gives a class. It is shown by their overlap with the points that have it now."""

    region: Tensor  # (n, points) bool, of the model's map
    target: Tensor | None = None  # (n, *coarse size) bool, if the data say so

    def share(self, answers: Tensor, samples: Tensor) -> Tensor:
        now = answers == self.labels.to(answers.device)[samples][:, None]
        before = self.region.to(answers.device)[samples]
        return (now & before).sum(1) / (now | before).sum(1).clamp(min=1)

    def truth(self, size: tuple[int, ...]) -> Tensor | None:
        return None if self.target is None else interpolate(self.target[:, None].float(), size)[:, 0] > 0


AnySubject = ObjectSubject | RegionSubject | ClassSubject


def find_subject(victim: Victim, clean: Tensor, batch: Batch, labels: Tensor | None) -> tuple[AnySubject, Tensor]:
    """What to explain, given the answers `clean` (n, k), and for which samples there is something to explain (n,) bool.

    `labels` (n,) are classes that the user chose. By default it is the predicted class, the object that the data name (the
    one with the best score, if there are several), or the class that fills most of a map, except class 0.
    """
    if victim.prediction == "boxes":
        return _find_object(Boxes.decode(clean), batch, labels)
    if victim.prediction == "map":
        return _find_region(clean, batch, labels)
    if victim.prediction == "numbers":
        raise ModelError(f"a model that predicts {WORDS['numbers']} cannot be explained yet: attack it instead")
    chosen = clean.argmax(1) if labels is None else labels.to(clean.device)
    return ClassSubject(chosen, victim.multilabel), torch.ones(len(clean), dtype=torch.bool)


def _find_object(found: Boxes, batch: Batch, labels: Tensor | None) -> tuple[AnySubject, Tensor]:
    wanted = found.label != NOBODY
    if labels is not None:
        wanted &= found.label == labels.to(wanted.device)[:, None]
    score, target = torch.where(wanted, found.score, 0.0), None
    if batch.target == "boxes":
        objects = TargetBoxes.decode(batch.y.to(score.device))
        near = overlaps(objects.xyxy, found.xyxy)
        fits = (near >= OVERLAP) & (objects.label[:, :, None] == found.label[:, None]) & objects.there[:, :, None]
        best = torch.where(fits, near * score[:, None], 0.0)  # (n, objects, boxes)
        which = best.amax(2).argmax(1)
        rows = torch.arange(len(which), device=which.device)
        target, score = objects.xyxy[rows, which], torch.where(fits[rows, which], score, 0.0)
    at = score.argmax(1)
    rows = torch.arange(len(at), device=at.device)
    return ObjectSubject(found.label[rows, at], found.xyxy[rows, at], target), (score.amax(1) >= SCORE).cpu()


def _find_region(clean: Tensor, batch: Batch, labels: Tensor | None) -> tuple[AnySubject, Tensor]:
    usual = torch.stack([_largest(row) for row in clean.long()])
    chosen = usual if labels is None else labels.to(clean.device)
    region = clean == chosen[:, None]
    target = decode_map(batch.y, batch.size) == chosen.cpu().view(-1, 1, 1) if batch.target == "map" else None
    return RegionSubject(chosen, region, target), (region.any(1) & (chosen > 0 if labels is None else True)).cpu()


def _largest(row: Tensor) -> Tensor:
    """The most common class above 0 of a map (points,); 0 if there is none."""
    counts = row.clamp(min=0).bincount()
    counts[0] = 0
    return counts.argmax()


def check_found(found: Tensor, ids: Sequence[str], prediction: str) -> None:
    """Refuse samples in which there is nothing to explain."""
    if not found.all():
        missing = [name for name, there in zip(ids, found.tolist(), strict=True) if not there]
        what = "object to explain" if prediction == "boxes" else "class to explain"
        raise OptionError(
            f"the model finds no {what} in {len(missing)} of {len(ids)} samples, first {missing[0]!r}: omit them"
        )
