"""One chunk of one victim: flip, write, ask again; then level after level the same. What is made of it are rows and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, ORIGINAL, Ladder, LadderLevel
from rlab.benchmarking.folder import Row
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.sample_files import COUNTS, SampleFiles, row_of
from rlab.benchmarking.thresholds import Near, search_around
from rlab.core.attack import Attack, SearchOutcome
from rlab.core.distances import measure
from rlab.core.env import State
from rlab.results.result import AttackResult, Status
from rlab.victims.base import PHASES, QueryMeter, Victim

_UNVERIFIED = "the stored file was not answered as it was found"


@dataclass(frozen=True)
class FinishedChunk:
    """For the progress bar."""

    rows: Sequence[Row]

    def __len__(self) -> int:
        return len({row["place"] for row in self.rows})

    def note(self) -> str:
        if not any(row["level"] == FLIP for row in self.rows):
            return f"{sum(bool(row['reached'] and row['victim']) for row in self.rows)} placed"
        flips = [row for row in self.rows if row["level"] == FLIP and row["status"] != Status.SKIPPED.value]
        return f"{sum(row['reached'] for row in flips)}/{len(flips)} flipped"


@dataclass(frozen=True)
class SetGenerator:
    """Makes the sets of one victim and chunk: its flips, and the levels beyond or around them."""

    files: SampleFiles
    attack: Attack
    search: LadderSearch
    ladder: Ladder
    name: str
    victim: Victim
    tolerance: float
    labels: Tensor  # of all chunks
    models: int = 1  # that the victim is an agreement of

    def __call__(self, originals: bool) -> list[dict[str, Any]]:
        """One row a sample and level, in this order; with `originals` one of the untouched sample before them."""
        first = self.files.first
        left, around = self._search()
        stored = left.perturbed.clone()
        stored[left.rows] = self.files.write(self.name, FLIP, (first + left.rows).tolist(), stored[left.rows])
        result = AttackResult.of(self.attack.verify(left, stored), stored)
        rows = [*(self.files.originals() if originals else ()), *self._flips(first, result)]
        order = (ORIGINAL, *self.ladder.names)
        for near in around:
            rows += self._threshold(first, result, near)
        state, meter = left.flipped, QueryMeter(self.victim, len(result))
        if state is not None:
            state = state[result.succeeded.to(state.sample.device)[state.sample]]
        for level in self.ladder.levels if not around else ():
            if state is not None and len(state):
                state, reached = self._level(first, result, state, level, meter)
                rows += reached
            for i in (~result.succeeded).nonzero().flatten().tolist():
                row = self._row(first, result, i, level.name, torch.zeros(len(PHASES)))
                rows.append(row | {"level_value": level.target, "reason": f"no flip: {result.status[i].value}"})
        return sorted(rows, key=lambda row: (row["place"], order.index(row["level"])))

    def _search(self) -> tuple[SearchOutcome, list[Near]]:
        """The flips, and what belongs around them where the ladder is of confidences."""
        batch, first = self.files.batch, self.files.first
        if self.ladder.kind != "confidence":
            return self.attack.search(self.victim, batch, first, self.labels), []
        return search_around(
            self.attack, self.victim, batch, first, self.labels, self.ladder, self.search, self.tolerance
        )

    def _threshold(self, first: int, result: AttackResult, near: Near) -> Iterator[Row]:
        """What was found for a confidence: its files are read back and asked about again."""
        level, at, meter, scores, x = near.level, near.met, near.meter, near.scores.clone(), near.x.clone()
        if at.any():
            samples = at.nonzero().flatten()
            x[at] = self.files.write(self.name, level.name, (first + samples).tolist(), x[at])
            scores[at] = meter(x[at].to(self.victim.device), samples, "verify").cpu()
        holds = at & near.goal.met(scores, result.labels, self.tolerance)
        distances = measure(result.original, x, near.assignment, self.files.batch.bounds)
        for i, status in enumerate(near.status):
            row = self._row(first, result, i, level.name, meter.counts[i]) | {"level_value": level.value}
            if holds[i]:
                yield row | self._stored(first + i, level.name, scores[i], near.assignment[i], row_of(distances, i))
            else:
                self.files.drop(self.name, level.name, first + i)
                confidence = float(scores[i, int(result.labels[i])].exp())
                missed = (
                    f"the nearest on its side of the flip left a confidence of {confidence:.3g}, not {level.value:g}"
                )
                untouched = f"untouched it is wrong or its confidence is below {level.value:g}"
                words = {Status.SUCCEEDED: _UNVERIFIED if at[i] else missed, Status.SKIPPED: untouched}
                yield row | {"reason": words.get(status, status.value)}

    def _flips(self, first: int, result: AttackResult) -> Iterator[dict[str, Any]]:
        for i, status in enumerate(result.status):
            row = self._row(first, result, i, FLIP, result.queries[i])
            if status is Status.SUCCEEDED:
                scores = result.after[i].clamp(min=1e-30).log()
                yield row | self._stored(first + i, FLIP, scores, result.assignment[i], row_of(result.final, i))
            else:
                self.files.drop(self.name, FLIP, first + i)
                yield row | {"reason": status.value}

    def _level(
        self, first: int, result: AttackResult, state: State, level: LadderLevel, meter: QueryMeter
    ) -> tuple[State, list[dict[str, Any]]]:
        """Goes on to the level, writes what is there, reads it back, asks once more, and tells of every sample."""
        before = meter.counts.clone()
        state, reasons = self.search.to(meter, state, level, result.final["l2"].to(state.x.device)[state.sample])
        samples, assignment, x, scores = (
            values.cpu().clone() for values in (state.sample, state.assignment, state.x, state.scores)
        )
        at = torch.tensor([reason is None for reason in reasons])
        if at.any():
            x[at] = self.files.write(self.name, level.name, (first + samples[at]).tolist(), x[at])
            scores[at] = meter(x[at].to(self.victim.device), samples[at], "verify").cpu()
        errs = self.search.goal.reached(scores, result.labels[samples])
        distances = measure(result.original[samples], x, assignment, self.files.batch.bounds)
        rows = []
        for j, (i, reason) in enumerate(zip(samples.tolist(), reasons, strict=True)):
            row = self._row(first, result, i, level.name, (meter.counts - before)[i]) | {"level_value": level.target}
            if reason is None and errs[j]:
                row |= self._stored(first + i, level.name, scores[j], assignment[j], row_of(distances, j))
            else:
                self.files.drop(self.name, level.name, first + i)
                row |= {"reason": reason or _UNVERIFIED}
            rows.append(row)
        return state, rows

    def _stored(
        self, sample: int, level: str, scores: Tensor, assignment: Tensor, distances: Mapping[str, float]
    ) -> dict[str, Any]:
        """What is known of a sample that has a file; scores (k,) are log-probabilities, of several models one's after another's:
        what is told is the answer of the one that is nearest to the true class."""
        label = int(self.files.batch.y[sample - self.files.first])
        answers = scores.view(self.models, -1)
        answer = answers[int(answers[:, label].argmax())]
        told = {"predicted": int(answer.argmax()), "probability": float(answer[label].exp())}
        return told | self.files.changed(self.name, level, sample, assignment, distances)

    def _row(self, first: int, result: AttackResult, i: int, level: str, queries: Tensor) -> dict[str, Any]:
        return {
            **self.files.blank(first + i, level),
            "victim": self.name,
            "policy": result.setting.policy,
            "level_kind": FLIP if level == FLIP else self.ladder.kind,
            "status": result.status[i].value,
            **{name: int(queries[j]) for j, name in enumerate(COUNTS)},
            "seed": int(result.seeds[i]),
            "outputs": (self.victim.classes or 0) // self.models,
        }
