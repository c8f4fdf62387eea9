"""One chunk of one set: find flips, query them again as they will be stored, then do the same for every level.

Every sample has a row at every level, with the reason if it does not reach it. Files are written by the process that owns the
results: a format rounds each value on its own, so the victim is queried with exactly the values that a file will hold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, BenchmarkOptions, Ladder, LadderLevel
from rlab.benchmarking.formats import Format, Shape, make_format
from rlab.benchmarking.goals import stored_attack
from rlab.benchmarking.ladder_search import NEAR, LadderSearch, fill_up, measured_bank, spent, unit_span
from rlab.core.attack import Attack
from rlab.core.distances import NAMES, measure
from rlab.core.env import render
from rlab.core.rng import uniform
from rlab.data.batch import Batch
from rlab.results.result import AttackResult, Status
from rlab.runs.chunk_work import ChunkTask
from rlab.runs.worker import Work
from rlab.victims.account import PHASES
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])
PLACED = "random placement"  # the policy of a set made without a model
Rows = list[dict[str, Any]]
Stored = dict[str, Tensor]  # by level, the samples (m, c, *size) that reach it, in the order of their rows
_FLIP = LadderLevel(FLIP, "flip")
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
class ChunkSearch:
    """The search for the levels of one chunk, which collects its rows and what its files will hold."""

    plan: SetPlan
    attack: Attack
    batch: Batch
    first: int  # position of the first sample in the benchmark
    rows: Rows = field(default_factory=list)
    stored: Stored = field(default_factory=dict)

    def add(
        self, level: LadderLevel, samples: Tensor, reasons: Sequence[str], assignment: Tensor, x: Tensor,
        columns: Sequence[Mapping[str, Any]], scores: Tensor | None = None, queries: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Add a row for each of the samples (m,), distorted to x (m, c, *size); one with a reason is not at the level.

        `columns` say more of every sample of the chunk; scores are log-probabilities (m, k), queries (m, phases).
        """
        distances = measure(self.batch.x[samples], x, assignment, self.batch.bounds)
        if (reached := torch.tensor([not reason for reason in reasons])).any():
            self.stored[level.name] = x[reached].contiguous()
        filters = [entry.filter.name for entry in self.attack.palette.entries]
        for i, (sample, reason) in enumerate(zip(samples.tolist(), reasons, strict=True)):
            row = blank_row(self.batch, sample, self.first, level) | {"victim": self.plan.name, "reason": reason}
            row |= columns[sample]
            if queries is not None:
                row |= dict(zip(COUNTS, queries[i].tolist(), strict=False))
            if not reason:
                entries = assignment[i].tolist()
                row |= {"reached": True, **{key: float(distances[key][i]) for key in NAMES}}
                row |= {"assignment": entries, "distortion": main_distortion(entries, filters)}
            if not reason and scores is not None:
                row |= {"predicted": int(scores[i].argmax()), "probability": float(scores[i, row["label"]].exp())}
            self.rows.append(row)

    def against(self, victim: Victim) -> None:
        """Search for flips, then for every level beyond them."""
        found = self.attack.search(victim, self.batch, self.first, self.plan.labels)
        result, state = AttackResult.of(found), found.flipped
        same, words = (
            {"policy": result.setting.policy, "outputs": victim.classes or 0},
            [s.value for s in result.status],
        )
        columns = [same | {"status": word, "seed": int(n)} for word, n in zip(words, result.seeds, strict=True)]
        reasons = ["" if word == Status.SUCCEEDED.value else word for word in words]
        every, scores = torch.arange(len(result)), result.after.clamp(min=1e-30).log()
        self.add(_FLIP, every, reasons, result.assignment, result.perturbed, columns, scores, result.queries)
        if state is not None:
            state = state[result.succeeded.to(state.sample.device)[state.sample]]
        search = LadderSearch(self.attack.grid, self.attack.goal, self.plan.options.steps, unit_span(self.batch.bounds))
        meter, lost = QueryMeter(victim, len(result)), (~result.succeeded).nonzero().flatten()
        no_flip = [f"no flip: {words[i]}" for i in lost.tolist()]
        for level in self.plan.ladder.levels:
            if state is not None and len(state):
                before, flips = meter.counts.clone(), result.final["l2"].to(state.x.device)[state.sample]
                state, missed = search.to(meter, state, level, flips)
                samples, x, scores = state.sample.cpu(), state.x.cpu(), state.scores.cpu().clone()
                if (there := torch.tensor([not reason for reason in missed])).any():  # those are queried again
                    scores[there] = meter(x[there].to(victim.device), samples[there], "verify").cpu()
                errs = search.goal.reached(scores, result.labels[samples]).tolist()
                reasons = [why or ("" if err else _UNVERIFIED) for why, err in zip(missed, errs, strict=True)]
                queries = (meter.counts - before)[samples]
                self.add(level, samples, reasons, state.assignment.cpu(), x, columns, scores, queries)
            if len(lost):
                self.add(level, lost, no_flip, result.assignment[lost], result.perturbed[lost], columns)

    def place(self) -> None:
        """Place random changes up to the distance of each level, without a model; all levels share one random order."""
        bank, cost, seeds = measured_bank(self.attack, self.batch, self.first)
        chance = uniform(seeds, torch.full_like(seeds, 2**23), cost[0].numel()).view_as(cost)
        nothing, every = torch.zeros(len(cost), cost.shape[2], dtype=torch.int64), torch.arange(len(cost))
        columns = [{"policy": PLACED, "seed": seed} for seed in seeds.tolist()]
        for level in self.plan.ladder.levels:
            assert level.target is not None
            assignment = fill_up(cost, nothing, chance, torch.full((len(cost),), level.target**2))
            far = spent(cost, assignment).sqrt().tolist()
            short = [f"no further patch fits: L2 {l2:.4g} of {level.target:.4g}" for l2 in far]
            reasons = ["" if l2 >= NEAR * level.target else why for l2, why in zip(far, short, strict=True)]
            self.add(level, every, reasons, assignment, render(bank, assignment, self.attack.grid), columns)


def chunk_work(victim: Victim | None, plan: SetPlan, attack: Attack | None) -> Work:
    """Make the rows of a chunk and what its files will hold; a worker builds the attack (None) from the options."""
    order = plan.ladder.names

    def work(task: ChunkTask) -> tuple[str, Rows, Stored]:
        assert task.batch is not None  # the samples are in memory
        recipe = attack or stored_attack(task.batch, plan.format, plan.options)
        chunk = ChunkSearch(plan, recipe, task.batch, task.first)
        if victim is None:
            chunk.place()
        else:
            chunk.against(victim)
        return task.key, sorted(chunk.rows, key=lambda row: (row["place"], order.index(row["level"]))), chunk.stored

    return work


def blank_row(batch: Batch, sample: int, first: int, level: LadderLevel) -> dict[str, Any]:
    """A row with every column."""
    return {
        "id": batch.ids[sample], "place": first + sample, "label": int(batch.y[sample]), "victim": "",
        "level": level.name, "level_kind": level.kind, "level_value": level.target, "reached": False, "reason": "",
        "status": "", "file": "", "row": None, "sha256": "", "predicted": None, "probability": None, "distortion": "",
        **dict.fromkeys(NAMES, math.nan), **dict.fromkeys(COUNTS, 0), "policy": "", "seed": None, "outputs": None,
        "assignment": None,
    }  # fmt: skip


def main_distortion(entries: Sequence[int], filters: Sequence[str]) -> str:
    """The filter on most patches; on a tie the first in the palette."""
    counts = Counter(filters[entry - 1] for entry in entries if entry)
    return max(counts, key=lambda name: (counts[name], -filters.index(name)), default="")
