"""One chunk of one victim: flip, write, ask again; then level after level the same. What is made of it are rows and files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, ORIGINAL, Ladder, LadderLevel
from rlab.benchmarking.folder import ORIGINALS, Row
from rlab.benchmarking.formats import Format
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.thresholds import Threshold, settle
from rlab.core.attack import Attack
from rlab.core.distances import NAMES, measure
from rlab.core.env import State
from rlab.core.result import AttackResult, Status
from rlab.data.batch import Batch
from rlab.runs.ledger import PARTS
from rlab.runs.names import file_name
from rlab.victims.base import PHASES, QueryMeter, Victim

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])
_UNVERIFIED = "the stored file was not answered as it was found"


@dataclass(frozen=True)
class SampleFiles:
    """Where the files of a chunk's samples lie, and how they are written. A sample is its position in the whole run."""

    folder: Path
    format: Format
    batch: Batch  # the chunk
    first: int  # its first sample
    begin: Callable[[], None]  # called before something is written

    def path(self, set_name: str, level: str, sample: int) -> Path:
        """Below the folder of the benchmark."""
        at = sample - self.first
        name = file_name(self.batch.ids[at].rsplit(".", 1)[0]).replace(".", "_").replace("+", "_")
        stem = f"{sample:05d}_{name}"  # letters that a WFDB record may have
        inner = self.format.path(stem, int(self.batch.y[at]))
        return Path(PARTS if self.format.joined else "", set_name, level, inner)

    def write(self, set_name: str, level: str, samples: Sequence[int], x: Tensor) -> Tensor:
        """Files of these samples (n, c, *size), and what they give back."""
        self.begin()
        stored = x.cpu().clone()
        for at, sample in enumerate(samples):
            path = self.folder / self.path(set_name, level, sample)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.format.write(path, stored[at])
            stored[at] = self.format.read(path)
        return stored

    def drop(self, set_name: str, level: str, sample: int) -> None:
        """No file of a sample that is not at the level."""
        for file in self.format.files(self.folder / self.path(set_name, level, sample)):
            file.unlink(missing_ok=True)

    def columns(self, set_name: str, level: str, sample: int) -> dict[str, Any]:
        """What the metadata say of a file."""
        path = self.path(set_name, level, sample)
        return {"reached": True, "file": path.as_posix(), "sha256": self.format.digest(self.folder / path)}


@dataclass(frozen=True)
class FinishedChunk:
    """For the progress bar."""

    rows: Sequence[Row]

    def __len__(self) -> int:
        return sum(row["level"] == FLIP for row in self.rows)

    def note(self) -> str:
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

    def __call__(self, originals: bool) -> list[dict[str, Any]]:
        """One row a sample and level, in this order; with `originals` one of the untouched sample before them."""
        first = self.files.first
        left = self.attack.search(self.victim, self.files.batch, first, self.labels)
        stored = left.perturbed.clone()
        stored[left.rows] = self.files.write(self.name, FLIP, (first + left.rows).tolist(), stored[left.rows])
        result = self.attack.verify(left, stored)
        rows = [*(self._originals() if originals else ()), *self._flips(first, result)]
        order = (ORIGINAL, *self.ladder.names)
        if self.ladder.kind == "confidence":
            for number, level in enumerate(self.ladder.levels):
                rows += self._threshold(result, level, number >= self.ladder.before)
            return sorted(rows, key=lambda row: (row["place"], order.index(row["level"])))
        state, meter = left.flipped, QueryMeter(self.victim, len(result))
        if state is not None:
            state = state[result.succeeded.to(state.sample.device)[state.sample]]
        for level in self.ladder.levels:
            if state is not None and len(state):
                state, reached = self._level(first, result, state, level, meter)
                rows += reached
            for i in (~result.succeeded).nonzero().flatten().tolist():
                row = self._row(first, result, i, level.name, torch.zeros(len(PHASES)))
                rows.append(row | {"level_value": level.value, "reason": f"no flip: {result.status[i].value}"})
        return sorted(rows, key=lambda row: (row["place"], order.index(row["level"])))

    def _threshold(self, result: AttackResult, level: LadderLevel, beyond: bool) -> Iterator[Row]:
        """An attack of its own with this confidence for a goal, its file read back and asked about again."""
        first, goal = self.files.first, Threshold(self.attack.goal, level.value, beyond)
        found = replace(self.attack, goal=goal).search(self.victim, self.files.batch, first, self.labels)
        meter, state = QueryMeter(self.victim, len(result)), found.flipped
        scores, assignment, x = found.scores.clone(), found.assignment.clone(), found.perturbed.clone()
        at = torch.zeros(len(result), dtype=torch.bool)
        if state is not None and len(state):
            cost = self.search.cost(state)
            state = settle(meter, state, goal, self.attack.grid, cost, self.search.steps, self.tolerance)
            rows = state.sample.cpu()
            scores[rows], x[rows] = state.scores.cpu(), state.x.cpu()
            assignment[rows] = state.assignment.cpu().to(assignment.dtype)
            at[rows] = goal.met(scores[rows], result.labels[rows], self.tolerance)
        if at.any():
            samples = at.nonzero().flatten()
            x[at] = self.files.write(self.name, level.name, (first + samples).tolist(), x[at])
            scores[at] = meter(x[at].to(self.victim.device), samples, "verify").cpu()
        holds = at & goal.met(scores, result.labels, self.tolerance)
        distances = measure(result.original, x, assignment, self.files.batch.bounds)
        for i, status in enumerate(found.status):
            queries = found.meter.counts[i] + meter.counts[i]
            row = self._row(first, result, i, level.name, queries) | {"level_value": level.value}
            if holds[i]:
                yield row | self._stored(first + i, level.name, scores[i], assignment[i], _row_of(distances, i))
            else:
                self.files.drop(self.name, level.name, first + i)
                confidence = float(scores[i, int(result.labels[i])].exp())
                missed = (
                    f"the nearest on its side of the flip left a confidence of {confidence:.3g}, not {level.value:g}"
                )
                untouched = f"untouched it is wrong or its confidence is below {level.value:g}"
                words = {Status.SUCCEEDED: _UNVERIFIED if at[i] else missed, Status.SKIPPED: untouched}
                yield row | {"reason": words.get(status, status.value)}

    def _originals(self) -> Iterator[dict[str, Any]]:
        """The untouched samples, once for all victims."""
        batch = self.files.batch
        samples = range(self.files.first, self.files.first + len(batch))
        assert torch.equal(self.files.write(ORIGINALS, "", samples, batch.x), batch.x)
        for name, label, sample in zip(batch.ids, batch.y.tolist(), samples, strict=True):
            row = _blank(name, sample, label, ORIGINAL) | self.files.columns(ORIGINALS, "", sample)
            yield row | dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0)

    def _flips(self, first: int, result: AttackResult) -> Iterator[dict[str, Any]]:
        for i, status in enumerate(result.status):
            row = self._row(first, result, i, FLIP, result.queries[i])
            if status is Status.SUCCEEDED:
                scores = result.after[i].clamp(min=1e-30).log()
                yield row | self._stored(first + i, FLIP, scores, result.assignment[i], _row_of(result.final, i))
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
            row = self._row(first, result, i, level.name, (meter.counts - before)[i]) | {"level_value": level.value}
            if reason is None and errs[j]:
                row |= self._stored(first + i, level.name, scores[j], assignment[j], _row_of(distances, j))
            else:
                self.files.drop(self.name, level.name, first + i)
                row |= {"reason": reason or _UNVERIFIED}
            rows.append(row)
        return state, rows

    def _stored(
        self, sample: int, level: str, scores: Tensor, assignment: Tensor, distances: Mapping[str, float]
    ) -> dict[str, Any]:
        """What is known of a sample that has a file; scores (k,) are log-probabilities."""
        filters = [entry.filter.name for entry in self.attack.palette.entries]
        return {
            **self.files.columns(self.name, level, sample),
            "predicted": int(scores.argmax()),
            "probability": float(scores[int(self.files.batch.y[sample - self.files.first])].exp()),
            "assignment": assignment.tolist(),
            "distortion": main_distortion(assignment, filters),
            **distances,
        }

    def _row(self, first: int, result: AttackResult, i: int, level: str, queries: Tensor) -> dict[str, Any]:
        return {
            **_blank(result.ids[i], first + i, int(result.labels[i]), level),
            "victim": self.name,
            "policy": result.setting.policy,
            "level_kind": FLIP if level == FLIP else self.ladder.kind,
            "status": result.status[i].value,
            **{name: int(queries[j]) for j, name in enumerate(COUNTS)},
            "seed": int(result.seeds[i]),
            "outputs": self.victim.classes,
        }


def _row_of(distances: Mapping[str, Tensor], i: int) -> dict[str, float]:
    return {name: float(distances[name][i]) for name in NAMES}


def _blank(name: str, sample: int, label: int, level: str) -> dict[str, Any]:
    """Every column, so that all rows have the same."""
    return {
        "id": name, "place": sample, "label": label, "victim": "", "level": level, "level_kind": level,
        "level_value": None, "reached": False, "reason": "", "status": "", "file": "", "row": None, "sha256": "",
        "predicted": None, "probability": None, "distortion": "", **dict.fromkeys(NAMES, math.nan),
        **dict.fromkeys(COUNTS, 0), "policy": "", "seed": None, "outputs": None, "assignment": None,
    }  # fmt: skip


def main_distortion(assignment: Tensor, filters: Sequence[str]) -> str:
    """The filter on most patches; of equals the first in the palette."""
    counts = Counter(filters[entry - 1] for entry in assignment.tolist() if entry)
    return max(counts, key=lambda name: (counts[name], -filters.index(name)), default="")
