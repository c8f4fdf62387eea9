"""One chunk of one victim: find flips, write them, query the files again; then do the same for every level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, LadderLevel
from rlab.benchmarking.goals import EveryModel
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.placed import unit_span
from rlab.benchmarking.sample_files import COUNTS, Rows, SampleFiles
from rlab.benchmarking.thresholds import Near, search_around
from rlab.core.attack import Attack
from rlab.core.env import State
from rlab.results.result import AttackResult, Status
from rlab.victims.base import QueryMeter, Victim

_UNVERIFIED = "the model's answer to the stored file differs from its answer during the search"


def make_chunk(files: SampleFiles, attack: Attack, victim: Victim, models: int = 1) -> Rows:
    """The rows of one chunk's sets, with their files; an agreement of several `models` must err as a whole."""
    attack = replace(attack, goal=EveryModel(attack.goal, models)) if models > 1 else attack
    plan, ladder = files.plan, files.plan.ladder
    search = LadderSearch(attack.grid, attack.goal, plan.options.steps, unit_span(files.batch.bounds))
    if ladder.kind == "confidence":
        left, around = search_around(attack, victim, files, search)
    else:
        left, around = replace(attack, records=True).search(victim, files.batch, files.first, plan.labels), []
    stored = left.perturbed.clone()
    stored[left.rows] = files.write(FLIP, left.rows, stored[left.rows])
    chunk = _Chunk(files, search, AttackResult.of(attack.verify(left, stored), stored), victim, models)
    rows = [*(files.originals() if plan.originals else ()), *chunk.flips()]
    for near in around:
        rows += chunk.threshold(near)
    state = left.flipped
    if state is not None:
        state = state[chunk.result.succeeded.to(state.sample.device)[state.sample]]
    for level in ladder.levels if not around else ():
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
    models: int

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

    def threshold(self, near: Near) -> Iterator[dict[str, Any]]:
        """Rows for one confidence."""
        level, outcome, labels = near.level, near.outcome, self.result.labels
        every = torch.arange(len(labels))
        x, scores = self._store(level, every, outcome.perturbed, outcome.scores, near.met, outcome.meter)
        holds = near.met & near.goal.met(scores, labels, self.files.plan.options.tolerance)
        unchanged = f"the model is wrong about the unchanged sample, or its confidence is below {level.value:g}"
        reasons = []
        for i, status in enumerate(outcome.status):
            confidence = float(scores[i, int(labels[i])].exp())
            missed = f"the nearest distortion on this side of the flip has confidence {confidence:.3g}"
            words = {Status.SUCCEEDED: _UNVERIFIED if near.met[i] else missed, Status.SKIPPED: unchanged}
            reasons.append("" if holds[i] else words.get(status, status.value))
        yield from self._rows(level, every, outcome.assignment, x, reasons, scores, outcome.meter.counts)

    def beyond(self, state: State, level: LadderLevel) -> tuple[State, Rows]:
        """Search for a level beyond the flip; the state there, and one row per sample."""
        result, before = self.result, self.meter.counts.clone()
        state, missed = self.search.to(self.meter, state, level, result.final["l2"].to(state.x.device)[state.sample])
        samples, at = state.sample.cpu(), torch.tensor([reason is None for reason in missed])
        x, scores = self._store(level, samples, state.x.cpu(), state.scores.cpu(), at, self.meter)
        errs = self.search.goal.reached(scores, result.labels[samples]).tolist()
        reasons = [reason or ("" if err else _UNVERIFIED) for reason, err in zip(missed, errs, strict=True)]
        queries = self.meter.counts - before
        return state, list(self._rows(level, samples, state.assignment.cpu(), x, reasons, scores, queries))

    def _store(
        self, level: LadderLevel, samples: Tensor, x: Tensor, scores: Tensor, at: Tensor, meter: QueryMeter
    ) -> tuple[Tensor, Tensor]:
        """x and scores, those of the rows `at` (m,) bool read back from their files and queried again."""
        x, scores = x.clone(), scores.clone()
        if at.any():
            x[at] = self.files.write(level.name, samples[at], x[at])
            scores[at] = meter(x[at].to(self.victim.device), samples[at], "verify").cpu()
        return x, scores

    def _rows(
        self, level: LadderLevel | None, samples: Tensor, assignment: Tensor, x: Tensor, reasons: Sequence[str],
        scores: Tensor, queries: Tensor,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """One row per sample (m,); scores are log-probabilities (m, k), or (m, a * k) of a models, queries (n, phases).

        Of several models, a row describes the one with the highest probability of the true class.
        """
        result = self.result
        for j, row in enumerate(self.files.rows(level, samples, assignment, x, reasons)):
            i, answers = int(samples[j]), scores[j].view(self.models, -1)
            row |= {
                "policy": result.setting.policy, "status": result.status[i].value, "seed": int(result.seeds[i]),
                "outputs": (self.victim.classes or 0) // self.models,
                **{name: int(queries[i, at]) for at, name in enumerate(COUNTS)},
            }  # fmt: skip
            if row["reached"]:
                answer = answers[int(answers[:, row["label"]].argmax())]
                row |= {"predicted": int(answer.argmax()), "probability": float(answer[row["label"]].exp())}
            yield row
