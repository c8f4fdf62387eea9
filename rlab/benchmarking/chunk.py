"""One chunk of one set: find flips, query them again as they will be stored, then do the same for every level.

Every sample has a row at every level, with the reason if it does not reach it. Files are written by the process that owns the
results: a format rounds each value on its own, so the victim is queried with exactly the values that a file will hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, BenchmarkOptions, Ladder, LadderLevel
from rlab.benchmarking.formats import make_format
from rlab.benchmarking.ladder_search import LadderSearch, unit_span
from rlab.benchmarking.single import Format, Shape
from rlab.core.attack import Attack
from rlab.core.distances import NAMES, measure
from rlab.core.env import State
from rlab.data.batch import Batch
from rlab.results.result import AttackResult, Status
from rlab.victims.account import PHASES
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])
Rows = list[dict[str, Any]]
Stored = dict[str, Tensor]  # by level, the samples (m, c, *size) that reach it, in the order of their rows
_UNVERIFIED = "the model's answer to the stored file differs from its answer during the search"


@dataclass(frozen=True)
class SetPlan:
    """How to make the sets against a victim, without the victim and the samples; workers receive it."""

    name: str  # of the victim
    options: BenchmarkOptions  # with every default filled in
    shape: Shape
    ladder: Ladder  # with the distances of its severities
    labels: Tensor  # of all samples

    @property
    def format(self) -> Format:
        assert self.options.format is not None
        return make_format(self.options.format, self.shape)


@dataclass(frozen=True)
class ChunkRows:
    """The rows of one chunk of a set, and what its files will hold. A sample is its position in the chunk."""

    plan: SetPlan
    batch: Batch  # the chunk
    first: int  # position of its first sample in the benchmark
    filters: tuple[str, ...]  # name of each palette entry's filter
    stored: Stored = field(default_factory=dict)

    def at(
        self, level: LadderLevel | None, samples: Tensor, assignment: Tensor, x: Tensor, reasons: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the row of each sample (m,) at a level (None: the flip), distorted to x (m, c, *size).

        A sample with a reason is not at the level, and has no file.
        """
        name, kind, value = (FLIP, FLIP, None) if level is None else (level.name, level.kind, level.target)
        distances = measure(self.batch.x[samples], x, assignment, self.batch.bounds)
        if (reached := torch.tensor([not reason for reason in reasons])).any():
            self.stored[name] = x[reached].contiguous()
        for at, (sample, reason) in enumerate(zip(samples.tolist(), reasons, strict=True)):
            about = {"victim": self.plan.name, "level_kind": kind, "level_value": value, "reason": reason}
            row = blank_row(self.batch, sample, self.first, name) | about
            if not reason:
                entries = assignment[at].tolist()
                row |= {"reached": True, **{key: float(distances[key][at]) for key in NAMES}}
                row |= {"assignment": entries, "distortion": main_distortion(entries, self.filters)}
            yield row


def blank_row(batch: Batch, sample: int, first: int, level: str) -> dict[str, Any]:
    """A row with every column."""
    return {
        "id": batch.ids[sample], "place": first + sample, "label": int(batch.y[sample]), "victim": "",
        "level": level, "level_kind": level, "level_value": None, "reached": False, "reason": "", "status": "",
        "file": "", "row": None, "sha256": "", "predicted": None, "probability": None, "distortion": "",
        **dict.fromkeys(NAMES, math.nan), **dict.fromkeys(COUNTS, 0), "policy": "", "seed": None, "outputs": None,
        "assignment": None,
    }  # fmt: skip


def main_distortion(entries: Sequence[int], filters: Sequence[str]) -> str:
    """The filter on most patches; on a tie the first in the palette."""
    counts = Counter(filters[entry - 1] for entry in entries if entry)
    return max(counts, key=lambda name: (counts[name], -filters.index(name)), default="")


def search_chunk(chunk: ChunkRows, attack: Attack, victim: Victim) -> Rows:
    """The rows of one chunk's flips and levels."""
    plan = chunk.plan
    found = replace(attack, records=True).search(victim, chunk.batch, chunk.first, plan.labels)
    result = AttackResult.of(found)
    search = LadderSearch(attack.grid, attack.goal, plan.options.steps, unit_span(chunk.batch.bounds))
    levels, state, rows = _Levels(chunk, search, result, QueryMeter(victim, len(result))), found.flipped, Rows()
    if state is not None:
        state = state[result.succeeded.to(state.sample.device)[state.sample]]
    for level in (None, *plan.ladder.levels):
        if level is not None and state is not None and len(state):
            state, reached = levels.beyond(state, level)
            rows += reached
        rows += levels.of_attack(level)
    return rows


@dataclass(frozen=True)
class _Levels:
    """The verified flips of a chunk, and the rows of its levels."""

    chunk: ChunkRows
    search: LadderSearch
    result: AttackResult
    meter: QueryMeter  # counts the queries beyond the flip

    def of_attack(self, level: LadderLevel | None) -> Iterator[dict[str, Any]]:
        """The flips (None), or the samples without one, which reach no level beyond it."""
        result = self.result
        flips, lost = level is None, (~self.result.succeeded).nonzero().flatten()
        rows = torch.arange(len(result)) if flips else lost
        if len(rows):
            words = (result.status[i] for i in rows.tolist())
            reasons = ["" if s is Status.SUCCEEDED else s.value if flips else f"no flip: {s.value}" for s in words]
            scores = result.after[rows].clamp(min=1e-30).log()
            queries = result.queries if flips else torch.zeros_like(result.queries)
            yield from self._rows(
                level, rows, result.assignment[rows], result.perturbed[rows], reasons, scores, queries
            )

    def beyond(self, state: State, level: LadderLevel) -> tuple[State, Rows]:
        """Search for a level beyond the flip; the state there, and one row per sample."""
        result, before = self.result, self.meter.counts.clone()
        state, missed = self.search.to(self.meter, state, level, result.final["l2"].to(state.x.device)[state.sample])
        samples, at = state.sample.cpu(), torch.tensor([reason is None for reason in missed])
        x, scores = state.x.cpu(), state.scores.cpu().clone()
        if at.any():  # those at the level are queried again
            scores[at] = self.meter(x[at].to(self.meter.victim.device), samples[at], "verify").cpu()
        errs = self.search.goal.reached(scores, result.labels[samples]).tolist()
        reasons = [reason or ("" if err else _UNVERIFIED) for reason, err in zip(missed, errs, strict=True)]
        queries = self.meter.counts - before
        return state, list(self._rows(level, samples, state.assignment.cpu(), x, reasons, scores, queries))

    def _rows(
        self, level: LadderLevel | None, samples: Tensor, assignment: Tensor, x: Tensor, reasons: Sequence[str],
        scores: Tensor, queries: Tensor,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """One row per sample (m,); scores are log-probabilities (m, k), queries (n, phases)."""
        result = self.result
        for j, row in enumerate(self.chunk.at(level, samples, assignment, x, reasons)):
            i = int(samples[j])
            row |= {
                "policy": result.setting.policy, "status": result.status[i].value, "seed": int(result.seeds[i]),
                "outputs": self.meter.victim.classes or 0,
                **{name: int(queries[i, at]) for at, name in enumerate(COUNTS)},
            }  # fmt: skip
            if row["reached"]:
                row |= {"predicted": int(scores[j].argmax()), "probability": float(scores[j, row["label"]].exp())}
            yield row
