"""Answers that an attack pays for: to the untouched inputs, and to each of its proposals."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Snapshot, State
from rlab.data.batch import Batch
from rlab.errors import VictimError
from rlab.victims.base import Outputs
from rlab.victims.meter import QueryMeter

MOST = 100  # answers kept of each sample: the first ones, which differ most
_LARGEST = 6e4  # that half precision holds


@dataclass(frozen=True)
class CleanAnswers(Rows):
    """What a model answered to n untouched inputs."""

    scores: Tensor  # (n, k)
    queries: Tensor  # (n,) spent on them
    outputs: Outputs  # how the model's outputs were read


@dataclass(frozen=True)
class Heard(Rows):
    """What a model answered to m proposals; the inputs can be rendered again from the bank of their samples."""

    sample: Tensor  # (m,) index of the sample in its chunk
    assignment: Tensor  # (m, p) uint8
    scores: Tensor  # (m, k) in half precision


@dataclass
class Listener:
    """Collects the answers to the proposals of a search."""

    parts: list[Heard] = field(default_factory=list)

    def note(self, state: State, after: Snapshot) -> None:
        """Note the answers of one step, except those that failed."""
        if len(self.parts) < MOST:
            rows = ~after.failed
            there = rows.to(state.answer.device)
            scores = state.answer[there].clamp(-_LARGEST, _LARGEST).half()
            self.parts.append(Heard(after.sample[rows], state.queried[there].to(torch.uint8), scores))

    def heard(self, patches: int, classes: int) -> Heard:
        """All answers, on the CPU, by sample."""
        answers = torch.zeros(0, classes, dtype=torch.half)
        none = Heard(torch.arange(0), torch.zeros(0, patches, dtype=torch.uint8), answers)
        parts = [Heard(part.sample, part.assignment.cpu(), part.scores.cpu()) for part in self.parts]
        whole = Heard.cat([none, *parts])
        return whole[whole.sample.argsort(stable=True)]


def first_answers(meter: QueryMeter, x0: Tensor, batch: Batch) -> Tensor:
    """Return scores (n, k) of the untouched inputs; an error mentions the leads, which the model may not expect."""
    try:
        answers = meter(x0, torch.arange(len(batch)), "search")
        if meter.lost.any():
            lost = f"{int(meter.lost.sum())} of {len(batch)} untouched samples"
            raise VictimError(f"the model did not answer for {lost} within {meter.budget} queries: it may be down")
        return answers
    except VictimError as error:
        if not batch.leads:
            raise
        raise VictimError(
            f"{error} (the data have {len(batch.leads)} leads, {', '.join(batch.leads)}: "
            f"if the model was made for others, choose them with leads)"
        ) from error
