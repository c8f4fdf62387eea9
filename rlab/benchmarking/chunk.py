"""One chunk of one victim: find flips, write them, query the files again; then do the same for every level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, LadderLevel
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.placed import unit_span
from rlab.benchmarking.sample_files import COUNTS, Rows, SampleFiles
from rlab.core.attack import Attack
from rlab.core.env import State
from rlab.results.result import AttackResult, Status
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

_UNVERIFIED = "the model's answer to the stored file differs from its answer during the search"


def make_chunk(files: SampleFiles, attack: Attack, victim: Victim) -> Rows:
    """The rows of one chunk's sets, with their files."""
    plan = files.plan
    search = LadderSearch(attack.grid, attack.goal, plan.options.steps, unit_span(files.batch.bounds))
    left = replace(attack, records=True).search(victim, files.batch, files.first, plan.labels)
    stored = left.perturbed.clone()
    stored[left.rows] = files.write(FLIP, left.rows, stored[left.rows])
    chunk = _Chunk(files, search, AttackResult.of(attack.verify(left, stored), stored), victim)
    rows = [*(files.originals() if plan.originals else ()), *chunk.flips()]
    state = left.flipped
    if state is not None:
        state = state[chunk.result.succeeded.to(state.sample.device)[state.sample]]
    for level in plan.ladder.levels:
        if state is not None and len(state):
            state, reached = chunk.beyond(state, level)
            rows += reached
        rows += chunk.without_flip(level)
    return plan.ordered(rows)


@dataclass(frozen=True)
class _Chunk:
    """The verified flips of a chunk, and the rows of its levels."""

    files: SampleFiles
    search: LadderSearch
    result: AttackResult
    victim: Victim

    @cached_property
    def meter(self) -> QueryMeter:
        """Counts the queries beyond the flip."""
        return QueryMeter(self.victim, len(self.result))

    def flips(self) -> Iterator[dict[str, Any]]:
        result = self.result
        reasons = ["" if status is Status.SUCCEEDED else status.value for status in result.status]
        scores = result.after.clamp(min=1e-30).log()
        every = torch.arange(len(result))
        yield from self._rows(None, every, result.assignment, result.perturbed, reasons, scores, result.queries)

    def without_flip(self, level: LadderLevel) -> Iterator[dict[str, Any]]:
        lost, result = (~self.result.succeeded).nonzero().flatten(), self.result
        if len(lost):
            reasons = [f"no flip: {result.status[i].value}" for i in lost.tolist()]
            here = (result.assignment[lost], result.perturbed[lost], reasons, result.after[lost])
            yield from self._rows(level, lost, *here, torch.zeros_like(result.queries))

    def beyond(self, state: State, level: LadderLevel) -> tuple[State, Rows]:
        """Search for a level beyond the flip; the state there, and one row per sample."""
        result, before = self.result, self.meter.counts.clone()
        state, missed = self.search.to(self.meter, state, level, result.final["l2"].to(state.x.device)[state.sample])
        samples, at = state.sample.cpu(), torch.tensor([reason is None for reason in missed])
        x, scores = self._store(level, samples, state.x.cpu(), state.scores.cpu(), at)
        errs = self.search.goal.reached(scores, result.labels[samples]).tolist()
        reasons = [reason or ("" if err else _UNVERIFIED) for reason, err in zip(missed, errs, strict=True)]
        queries = self.meter.counts - before
        return state, list(self._rows(level, samples, state.assignment.cpu(), x, reasons, scores, queries))

    def _store(
        self, level: LadderLevel, samples: Tensor, x: Tensor, scores: Tensor, at: Tensor
    ) -> tuple[Tensor, Tensor]:
        """x and scores, those of the rows `at` (m,) bool read back from their files and queried again."""
        x, scores = x.clone(), scores.clone()
        if at.any():
            x[at] = self.files.write(level.name, samples[at], x[at])
            scores[at] = self.meter(x[at].to(self.victim.device), samples[at], "verify").cpu()
        return x, scores

    def _rows(
        self, level: LadderLevel | None, samples: Tensor, assignment: Tensor, x: Tensor, reasons: Sequence[str],
        scores: Tensor, queries: Tensor,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """One row per sample (m,); scores are log-probabilities (m, k), queries (n, phases)."""
        result = self.result
        for j, row in enumerate(self.files.rows(level, samples, assignment, x, reasons)):
            i = int(samples[j])
            row |= {
                "policy": result.setting.policy, "status": result.status[i].value, "seed": int(result.seeds[i]),
                "outputs": self.victim.classes or 0,
                **{name: int(queries[i, at]) for at, name in enumerate(COUNTS)},
            }  # fmt: skip
            if row["reached"]:
                row |= {"predicted": int(scores[j].argmax()), "probability": float(scores[j, row["label"]].exp())}
            yield row
