"""The files of a benchmark's samples, and the columns that describe them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import FLIP, ORIGINAL, ORIGINALS, BenchmarkOptions, Ladder, LadderLevel
from rlab.benchmarking.formats import Joined, make_format
from rlab.benchmarking.single import Format, Shape
from rlab.core.distances import NAMES, measure
from rlab.data.batch import Batch
from rlab.storage.names import file_name
from rlab.storage.run_file import PARTS
from rlab.victims.base import PHASES

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class SetPlan:
    """How to make the sets against a victim, without the victim and the samples; workers receive it."""

    name: str  # of the victim
    options: BenchmarkOptions  # with every default filled in
    shape: Shape
    ladder: Ladder  # calibrated
    labels: Tensor  # of all samples
    originals: bool  # whether to write the unchanged samples too

    @property
    def format(self) -> Format:
        assert self.options.format is not None
        return make_format(self.options.format, self.shape)

    def ordered(self, rows: Rows) -> Rows:
        """Sort rows by sample and level."""
        order = (ORIGINAL, *self.ladder.names)
        return sorted(rows, key=lambda row: (row["place"], order.index(row["level"])))


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
        """Write the unchanged samples, shared by all sets, and yield their rows."""
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
            row = self._blank(sample, name) | {
                "victim": self.plan.name, "level_kind": kind, "level_value": value, "reason": reason,
            }  # fmt: skip
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
