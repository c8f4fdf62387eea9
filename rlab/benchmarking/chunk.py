"""One chunk of one victim: find flips, write them, query the files again; then do the same for every level.

Every file has a row, and so has every level that a sample does not reach, with the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, ORIGINAL, ORIGINALS, BenchmarkOptions, Ladder, LadderLevel
from rlab.benchmarking.formats import Joined, make_format
from rlab.benchmarking.ladder_search import LadderSearch, unit_span
from rlab.benchmarking.single import Format, Shape
from rlab.core.attack import Attack
from rlab.core.distances import NAMES, measure
from rlab.core.env import State
from rlab.core.outcome import SearchOutcome
from rlab.data.batch import Batch
from rlab.results.result import AttackResult, Status
from rlab.storage.names import file_name
from rlab.storage.run_file import PARTS
from rlab.victims.account import PHASES
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])
Rows = list[dict[str, Any]]
_UNVERIFIED = "the model's answer to the stored file differs from its answer during the search"


@dataclass(frozen=True)
class SetPlan:
    """How to make the sets against a victim, without the victim and the samples; workers receive it."""

    name: str  # of the victim
    options: BenchmarkOptions  # with every default filled in
    shape: Shape
    ladder: Ladder  # with the distances of its severities
    labels: Tensor  # of all samples
    originals: bool  # whether to write the unchanged samples too

    @property
    def format(self) -> Format:
        assert self.options.format is not None
        return make_format(self.options.format, self.shape)


@dataclass(frozen=True)
class SampleFiles:
    """Paths, contents and columns of one chunk's files. A sample is its position in the chunk."""

    plan: SetPlan
    folder: Path
    batch: Batch  # the chunk
    first: int  # position of its first sample in the benchmark
    filters: tuple[str, ...]  # name of each palette entry's filter

    def path(self, level: str, sample: int) -> Path:
        """The path within the benchmark's folder."""
        name = file_name(self.batch.ids[sample].rsplit(".", 1)[0]).replace(".", "_").replace("+", "_")
        stem = f"{self.first + sample:05d}_{name}"  # only characters that WFDB records allow
        inner = self.plan.format.path(stem, int(self.batch.y[sample]))
        folders = (ORIGINALS,) if level == ORIGINAL else (self.plan.name, level)
        return Path(PARTS if isinstance(self.plan.format, Joined) else "", *folders, inner)

    def write(self, level: str, samples: Tensor, x: Tensor) -> Tensor:
        """Write these samples (n, c, *size), and return them as read back."""
        stored, form = x.cpu().clone(), self.plan.format
        for at, sample in enumerate(samples.tolist()):
            path = self.folder / self.path(level, sample)
            path.parent.mkdir(parents=True, exist_ok=True)
            form.write(path, stored[at])
            stored[at] = form.read(path)
        return stored

    def originals(self) -> Iterator[dict[str, Any]]:
        """Write the unchanged samples, which all sets share, and yield their rows."""
        samples = torch.arange(len(self.batch))
        assert torch.equal(self.write(ORIGINAL, samples, self.batch.x), self.batch.x)
        for sample in samples.tolist():
            row = self._blank(sample, ORIGINAL) | self._file(ORIGINAL, sample)
            yield row | dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0)

    def rows(
        self, level: LadderLevel | None, samples: Tensor, assignment: Tensor, x: Tensor, reasons: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Yield the row of each sample (m,) at a level (None: the flip), distorted to x (m, c, *size).

        A sample with a reason is not at the level: its files are deleted.
        """
        name, kind, value = (FLIP, FLIP, None) if level is None else (level.name, level.kind, level.target)
        distances = measure(self.batch.x[samples], x, assignment, self.batch.bounds)
        for at, (sample, reason) in enumerate(zip(samples.tolist(), reasons, strict=True)):
            about = {"victim": self.plan.name, "level_kind": kind, "level_value": value, "reason": reason}
            row = self._blank(sample, name) | about
            if reason:
                for file in self.plan.format.files(self.folder / self.path(name, sample)):
                    file.unlink(missing_ok=True)
            else:
                entries = assignment[at].tolist()
                row |= self._file(name, sample) | {key: float(distances[key][at]) for key in NAMES}
                row |= {"assignment": entries, "distortion": main_distortion(entries, self.filters)}
            yield row

    def _file(self, level: str, sample: int) -> dict[str, Any]:
        """The columns that describe a file."""
        path = self.path(level, sample)
        return {"reached": True, "file": path.as_posix(), "sha256": self.plan.format.digest(self.folder / path)}

    def _blank(self, sample: int, level: str) -> dict[str, Any]:
        """A row with every column."""
        return {
            "id": self.batch.ids[sample], "place": self.first + sample, "label": int(self.batch.y[sample]), "victim": "",
            "level": level, "level_kind": level, "level_value": None, "reached": False, "reason": "", "status": "",
            "file": "", "row": None, "sha256": "", "predicted": None, "probability": None, "distortion": "",
            **dict.fromkeys(NAMES, math.nan), **dict.fromkeys(COUNTS, 0), "policy": "", "seed": None, "outputs": None,
            "assignment": None,
        }  # fmt: skip


def main_distortion(entries: Sequence[int], filters: Sequence[str]) -> str:
    """The filter on most patches; on a tie the first in the palette."""
    counts = Counter(filters[entry - 1] for entry in entries if entry)
    return max(counts, key=lambda name: (counts[name], -filters.index(name)), default="")


def search_chunk(files: SampleFiles, attack: Attack, victim: Victim) -> Rows:
    """The rows of one chunk's flips and levels, with their files."""
    plan = files.plan

    def store(found: SearchOutcome) -> Tensor:
        stored = found.perturbed.clone()
        stored[found.rows] = files.write(FLIP, found.rows, stored[found.rows])
        return stored

    found = replace(attack, records=True).search(victim, files.batch, files.first, plan.labels, store=store)
    result = AttackResult.of(found)
    search = LadderSearch(attack.grid, attack.goal, plan.options.steps, unit_span(files.batch.bounds))
    levels, state, rows = _Levels(files, search, result, QueryMeter(victim, len(result))), found.flipped, Rows()
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

    files: SampleFiles
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
        x, scores = state.x.cpu().clone(), state.scores.cpu().clone()
        if at.any():  # those at the level are read back from their files and queried again
            x[at] = self.files.write(level.name, samples[at], x[at])
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
        for j, row in enumerate(self.files.rows(level, samples, assignment, x, reasons)):
            i = int(samples[j])
            row |= {
                "policy": result.setting.policy, "status": result.status[i].value, "seed": int(result.seeds[i]),
                "outputs": self.meter.victim.classes or 0,
                **{name: int(queries[i, at]) for at, name in enumerate(COUNTS)},
            }  # fmt: skip
            if row["reached"]:
                row |= {"predicted": int(scores[j].argmax()), "probability": float(scores[j, row["label"]].exp())}
            yield row
