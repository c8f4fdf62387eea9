"""What a victim answered: the inputs that were sent and the scores that came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import DataError
from rlab.storage.digest import digest


@dataclass(frozen=True)
class Answers:
    """A victim's answers to n inputs.

    Scores are as `rlab.victims.base.Victim` returns them: log-probabilities, log-odds of a multi-label victim, and a ranking in
    the same form if the victim returns only labels. `source` names the clean input that each input was made from (by default
    itself), so that an input and its distorted copies can be kept together; `distorted` says which inputs are such copies.
    """

    x: Tensor  # (n, c, *size)
    scores: Tensor  # (n, k)
    source: tuple[str, ...] = ()
    distorted: Tensor | None = None  # (n,) bool; None: no input is distorted
    queries: int = 0  # spent only to learn; 0 for answers that an attack paid for
    origins: tuple[str, ...] = ()  # where they come from, for people

    def __post_init__(self) -> None:
        if not len(self.x) or len(self.x) != len(self.scores) or self.x.dim() < 3 or self.scores.dim() != 2:
            shapes = f"inputs {tuple(self.x.shape)} and scores {tuple(self.scores.shape)}"
            raise DataError(f"expected inputs (n, c, *size) and scores (n, k) with n above 0, got {shapes}")
        if self.source and len(self.source) != len(self.x):
            raise DataError(f"expected one source for each of {len(self.x)} inputs, got {len(self.source)}")
        if not self.source:
            object.__setattr__(self, "source", source_names(self.x))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def changed(self) -> Tensor:
        """(n,) bool: which inputs are distorted."""
        return torch.zeros(len(self), dtype=torch.bool) if self.distorted is None else self.distorted

    def __getitem__(self, rows: Tensor) -> Answers:
        """The answers in `rows` (m,), with the same cost and origins."""
        source = tuple(self.source[i] for i in rows.tolist())
        return Answers(self.x[rows], self.scores[rows], source, self.changed[rows], self.queries, self.origins)

    @classmethod
    def join(cls, parts: Sequence[Answers]) -> Answers:
        """All answers in one; the inputs have one shape and the scores one number of classes."""
        shapes = {(tuple(part.x.shape[1:]), part.scores.shape[1]) for part in parts}
        if len(shapes) != 1:
            listed = " and ".join(f"{shape} with {classes} classes" for shape, classes in sorted(shapes))
            raise DataError(f"expected answers about inputs of one shape and one number of classes, got {listed}")
        return cls(
            x=torch.cat([part.x for part in parts]),
            scores=torch.cat([part.scores for part in parts]),
            source=tuple(name for part in parts for name in part.source),
            distorted=torch.cat([part.changed for part in parts]),
            queries=sum(part.queries for part in parts),
            origins=tuple(dict.fromkeys(origin for part in parts for origin in part.origins)),
        )


def source_names(x: Tensor) -> tuple[str, ...]:
    """The names of clean inputs (n, c, *size): equal inputs get equal names, in whatever run they come up."""
    return tuple(digest(row) for row in x)
