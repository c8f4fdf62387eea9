"""The clean answers of a run that queries all untouched inputs first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.heard import CleanAnswers
from rlab.data.batch import Batch, Samples
from rlab.errors import DataError
from rlab.victims.base import Outputs


@dataclass(frozen=True)
class CleanChunk:
    """The clean answers about the samples `rows` of a run."""

    rows: Tensor  # (m,)
    scores: Tensor  # (m, k)
    queries: Tensor  # (m,)
    outputs: Outputs

    @classmethod
    def of(cls, rows: Tensor, answers: CleanAnswers | None) -> CleanChunk:
        """None if none of the samples could be read."""
        if answers is None:
            return cls(rows[:0], torch.zeros(0, 0), rows[:0], "auto")
        return cls(rows, answers.scores, answers.queries, answers.outputs)


@dataclass(frozen=True)
class CleanTable:
    """The clean answers of a whole run; a sample that could not be read has none."""

    scores: Tensor  # (n, k)
    queries: Tensor  # (n,); 0 without an answer
    outputs: Outputs

    @classmethod
    def of(cls, samples: int, parts: Sequence[CleanChunk]) -> CleanTable:
        """Join the chunks."""
        some = [part for part in parts if len(part.rows)]
        if not some:
            raise DataError(f"none of {samples} samples can be read")
        scores = torch.zeros(samples, some[0].scores.shape[1])
        queries = torch.zeros(samples, dtype=torch.int64)
        for part in some:
            scores[part.rows], queries[part.rows] = part.scores, part.queries
        return cls(scores, queries, some[0].outputs)

    def of_chunk(self, samples: Samples, rows: slice, batch: Batch) -> CleanAnswers:
        """The answers about the samples of a chunk that were read."""
        at = places(samples, rows, batch.ids)
        if not self.queries[at].all():
            raise DataError(f"{batch.ids[0]!r} or its neighbours could not be read before: restore the data of the run")
        return CleanAnswers(self.scores[at], self.queries[at], self.outputs)


def places(samples: Samples, rows: slice, read: Sequence[str]) -> Tensor:
    """Row numbers (b,) in the run of those samples in `rows` that could be read, by their ids, which keep their order."""
    ids = enumerate(samples.ids[rows], rows.start)
    return torch.tensor([next(at for at, name in ids if name == wanted) for wanted in read], dtype=torch.int64)
