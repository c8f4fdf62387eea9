"""One chunk of one victim: find flips, write them, query the files again; then do the same for every level."""

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

_UNVERIFIED = "the model's answer to the stored file differs from its answer during the search"


@dataclass(frozen=True)
class FinishedChunk:
    """A chunk as the progress bar shows it."""

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
    """Makes the sets of one victim and chunk: the flips, and the levels beyond or around them."""

    files: SampleFiles
    attack: Attack
    search: LadderSearch
    ladder: Ladder
    name: str
    victim: Victim
    tolerance: float
    labels: Tensor  # of all chunks
    models: int = 1  # number of models in an agreement

    def __call__(self, originals: bool) -> list[dict[str, Any]]:
        """One row per sample and level, in this order; with `originals` also one per unchanged sample."""
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
        """The flips, and for a ladder of confidences what lies around them."""
        batch, first = self.files.batch, self.files.first
        if self.ladder.kind != "confidence":
            return self.attack.search(self.victim, batch, first, self.labels), []
        return search_around(
            self.attack, self.victim, batch, first, self.labels, self.ladder, self.search, self.tolerance
        )

    def _threshold(self, first: int, result: AttackResult, near: Near) -> Iterator[Row]:
        """Rows for one confidence; its files are read back and queried again."""
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
                missed = f"the nearest distortion on this side of the flip has confidence {confidence:.3g}, not {level.value:g}"
                unchanged = f"the model is wrong about the unchanged sample, or its confidence is below {level.value:g}"
                words = {Status.SUCCEEDED: _UNVERIFIED if at[i] else missed, Status.SKIPPED: unchanged}
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
        """Search for the level, write its files, read them back and query them again; one row per sample."""
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
        """The columns of a sample that has a file; scores are log-probabilities (k,), or (m * k,) of m models.

        Of several models, the columns describe the one with the highest probability of the true class.
        """
        label = int(self.files.batch.y[sample - self.files.first])
        answers = scores.view(self.models, -1)
        answer = answers[int(answers[:, label].argmax())]
        prediction = {"predicted": int(answer.argmax()), "probability": float(answer[label].exp())}
        return prediction | self.files.changed(self.name, level, sample, assignment, distances)

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
