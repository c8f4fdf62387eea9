"""One chunk of one victim: flip, write, ask again; then level after level the same. Its rows go to the ledger at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.folder import ORIGINALS
from rlab.benchmarking.formats import Format
from rlab.benchmarking.ladder import FLIP, ORIGINAL, Ladder, Level
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.core.attack import Attack
from rlab.core.distances import NAMES, measure
from rlab.core.env import State
from rlab.core.result import AttackResult, Setting, Status
from rlab.data.batch import Batch
from rlab.runs.attack import PARTS, Run
from rlab.victims.base import PHASES, QueryMeter, Victim

_COUNTED = PHASES[:3]


@dataclass(frozen=True)
class Work:
    """What is made, of what, and where."""

    run: Run
    attack: Attack
    climb: LadderSearch
    ladder: Ladder
    form: Format
    batch: Batch
    seed: int

    def path(self, set_name: str, level: str, place: int) -> Path:
        """Below the folder of the benchmark."""
        stem = f"{place:05d}_{re.sub(r'[^A-Za-z0-9-]+', '_', self.batch.ids[place].rsplit('.', 1)[0])[-60:]}"
        inner = self.form.place(stem, int(self.batch.y[place]))
        return Path(PARTS if self.form.joined else "", set_name, level, inner)

    def write(self, set_name: str, level: str, places: Sequence[int], x: Tensor) -> Tensor:
        """Files of these samples (n, c, *size), and what they give back."""
        self.run.create()
        read = []
        for place, one in zip(places, x.cpu(), strict=True):
            path = self.run.folder / self.path(set_name, level, place)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.form.write(path, one)
            read.append(self.form.read(path))
        return torch.stack(read) if read else x.cpu()

    def drop(self, set_name: str, level: str, place: int) -> None:
        """No file of a sample that is not at the level."""
        for one in self.form.files(self.run.folder / self.path(set_name, level, place)):
            one.unlink(missing_ok=True)


@dataclass(frozen=True)
class Made:
    """A finished chunk, for the progress bar."""

    count: int
    flipped: int
    tried: int

    def __len__(self) -> int:
        return self.count

    def note(self) -> str:
        return f"{self.flipped}/{self.tried} flipped"


@dataclass(frozen=True)
class Maker:
    """One victim's share of the work."""

    work: Work
    number: int
    name: str
    victim: Victim

    def key(self, rows: slice) -> int:
        return self.number * len(self.work.batch) + rows.start

    def make(self, rows: slice) -> Made:
        work, ledger = self.work, self.work.run.ledger
        if ledger is not None:
            ledger.begin(self.key(rows))
        result, flipped = self._flip(rows)
        made = self._originals(rows) if self.number == 0 else []
        made += self._flip_rows(rows, result)
        if flipped is not None and len(flipped):
            made += self._climb(rows, result, flipped)
        made += self._absent(rows, result, made)
        if ledger is None:
            ledger = work.run.ledger
            assert ledger is not None
            ledger.begin(self.key(rows))
        width = len(work.ladder.names) + 1
        order = [ORIGINAL, *work.ladder.names]
        base = self.number * len(work.batch)
        placed = [((base + row["place"]) * width + order.index(row["level"]), row) for row in made]
        ledger.commit_rows(self.key(rows), placed)
        return Made(len(result), int(result.succeeded.sum()), int(result.attacked.sum()))

    def _flip(self, rows: slice) -> tuple[AttackResult, State | None]:
        """The attack, verified from the files its flips were written to."""
        work, seen = self.work, list[State]()

        def through_files(arrays: Mapping[str, Tensor], setting: Setting) -> Tensor:
            work.run.create()
            stored = arrays["perturbed"].clone()
            found = seen[0].sample.cpu() if seen else torch.arange(0)
            places = [rows.start + i for i in found.tolist()]
            stored[found] = work.write(self.name, FLIP, places, stored[found])
            return stored

        result = work.attack.attack_chunk(
            self.victim, work.batch[rows], work.seed, rows.start, through_files, work.batch.y, seen.append
        )
        if not seen:
            return result, None
        held = result.succeeded.to(seen[0].sample.device)[seen[0].sample]
        return result, seen[0][held]

    def _climb(self, rows: slice, result: AttackResult, state: State) -> list[dict[str, Any]]:
        work, made = self.work, list[dict[str, Any]]()
        meter = QueryMeter(self.victim, len(result))
        flip = result.final["l2"].to(state.x.device)[state.sample]
        for level in work.ladder.levels:
            before = meter.counts.clone()
            state, words = work.climb.to(meter, state, level, flip)
            made += self._level_rows(rows, result, state, level, words, meter, before)
        return made

    def _level_rows(
        self, rows: slice, result: AttackResult, state: State, level: Level, words: Sequence[str | None],
        meter: QueryMeter, before: Tensor,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Writes what is at the level, reads it back, asks once more, and tells of every sample."""
        work = self.work
        there = torch.tensor([word is None for word in words], device=state.sample.device)
        some = state[there]
        index = some.sample.cpu()
        x = work.write(self.name, level.name, [rows.start + i for i in index.tolist()], some.x)
        said: dict[int, tuple[bool, Tensor]] = {}
        if len(index):
            scores = meter(x.to(self.victim.device), index, "verify").cpu()
            held = work.climb.goal.reached(scores, work.batch[rows].y[index])
            said = {int(i): (bool(ok), one) for i, ok, one in zip(index, held, scores, strict=True)}
        spent = meter.counts - before
        far = measure(result.original[index], x, some.assignment.cpu(), work.batch.bounds) if len(index) else {}
        numbers = {int(i): {name: float(column[at]) for name, column in far.items()} for at, i in enumerate(index)}
        made = []
        for word, i, assignment in zip(words, state.sample.tolist(), state.assignment.cpu(), strict=True):
            row = self._row(rows.start + i, level.name, result, i, queries=spent[i])
            row |= {"level_value": level.value, "reason": word or ""}
            if word is None and said[i][0]:
                row |= self._there(rows.start + i, level.name, said[i][1], assignment, numbers[i])
            elif word is None:
                work.drop(self.name, level.name, rows.start + i)
                row |= {"reason": "the stored file did not make the model err again"}
            made.append(row)
        return made

    def _flip_rows(self, rows: slice, result: AttackResult) -> list[dict[str, Any]]:
        work, made = self.work, []
        for i, status in enumerate(result.status):
            row = self._row(rows.start + i, FLIP, result, i, queries=result.queries[i])
            if status is not Status.SUCCEEDED:
                work.drop(self.name, FLIP, rows.start + i)
                row |= {"reason": status.value}
            else:
                far = {name: float(result.final[name][i]) for name in NAMES}
                log = result.after[i].clamp(min=1e-30).log()
                row |= self._there(rows.start + i, FLIP, log, result.assignment[i].long(), far)
            made.append(row)
        return made

    def _there(
        self, place: int, level: str, scores: Tensor, assignment: Tensor, distances: Mapping[str, float]
    ) -> dict[str, Any]:
        """What is known of a stored sample."""
        work = self.work
        inner = work.path(self.name, level, place)
        names = [entry.filter.name for entry in work.attack.palette.entries]
        return {
            "reached": True,
            "file": inner.as_posix(),
            "sha256": work.form.digest(work.run.folder / inner),
            "predicted": int(scores.argmax()),
            "probability": float(scores[int(work.batch.y[place])].exp()),
            "assignment": assignment.tolist(),
            "distortion": main_distortion(assignment, names),
            **distances,
        }

    def _originals(self, rows: slice) -> list[dict[str, Any]]:
        """The untouched samples, once for all victims."""
        work, batch = self.work, self.work.batch[rows]
        places = list(range(rows.start, rows.stop))
        read = work.write(ORIGINALS, "", places, batch.x)
        assert torch.equal(read, batch.x)
        made = []
        for i, place in enumerate(places):
            inner = work.path(ORIGINALS, "", place)
            row = _blank(batch.ids[i], place, int(batch.y[i]), ORIGINAL)
            row |= {"file": inner.as_posix(), "sha256": work.form.digest(work.run.folder / inner), "reached": True}
            made.append(row | dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0))
        return made

    def _absent(self, rows: slice, result: AttackResult, made: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Levels of samples that were never flipped: recorded, with the reason."""
        known = {(row["place"], row["level"]) for row in made}
        missing = []
        for i, status in enumerate(result.status):
            for level in self.work.ladder.levels:
                if (rows.start + i, level.name) not in known:
                    row = self._row(rows.start + i, level.name, result, i, queries=torch.zeros(len(PHASES)))
                    missing.append(row | {"level_value": level.value, "reason": f"no flip: {status.value}"})
        return missing

    def _row(self, place: int, level: str, result: AttackResult, i: int, queries: Tensor) -> dict[str, Any]:
        row = _blank(result.ids[i], place, int(result.labels[i]), level)
        counted = {f"queries_{phase}": int(queries[j]) for j, phase in enumerate(_COUNTED)}
        who = {"victim": self.name, "policy": self.work.attack.label or str(self.work.attack.policy)}
        kind = {"level_kind": FLIP if level == FLIP else self.work.ladder.kind, "status": result.status[i].value}
        return row | who | kind | counted | {"seed": int(result.seeds[i]), "outputs": self.victim.classes}


def _blank(name: str, place: int, label: int, level: str) -> dict[str, Any]:
    """Every column, so that all rows have the same."""
    return {
        "id": name, "place": place, "label": label, "victim": "", "level": level, "level_kind": level,
        "level_value": None, "reached": False, "reason": "", "status": "", "file": "", "row": None, "sha256": "",
        "predicted": None, "probability": None, "distortion": "", **dict.fromkeys(NAMES, math.nan),
        **{f"queries_{phase}": 0 for phase in _COUNTED}, "policy": "", "seed": None, "outputs": None, "assignment": None,
    }  # fmt: skip


def main_distortion(assignment: Tensor, names: Sequence[str]) -> str:
    """The filter on most patches; of equals the first in the palette."""
    counts: dict[str, int] = {}
    for entry in assignment.tolist():
        if entry:
            counts[names[entry - 1]] = counts.get(names[entry - 1], 0) + 1
    return max(counts, key=lambda name: (counts[name], -names.index(name))) if counts else ""
