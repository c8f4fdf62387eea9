"""The files of a benchmark's samples, and the columns that describe them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import ORIGINALS
from rlab.benchmarking.single import Format
from rlab.core.distances import NAMES
from rlab.data.batch import Batch
from rlab.storage.ledger import PARTS
from rlab.storage.names import file_name
from rlab.victims.base import PHASES

COUNTS = tuple(f"queries_{phase}" for phase in PHASES[:3])


@dataclass(frozen=True)
class SampleFiles:
    """Paths, contents and columns of one chunk's files. A sample is its position in the benchmark."""

    folder: Path
    format: Format
    batch: Batch  # the chunk
    first: int  # position of its first sample
    begin: Callable[[], None]  # called before anything is written
    filters: tuple[str, ...]  # name of each palette entry's filter

    def path(self, set_name: str, level: str, sample: int) -> Path:
        """The path within the benchmark's folder."""
        at = sample - self.first
        name = file_name(self.batch.ids[at].rsplit(".", 1)[0]).replace(".", "_").replace("+", "_")
        stem = f"{sample:05d}_{name}"  # only characters that WFDB records allow
        inner = self.format.path(stem, int(self.batch.y[at]))
        return Path(PARTS if self.format.joined else "", set_name, level, inner)

    def write(self, set_name: str, level: str, samples: Sequence[int], x: Tensor) -> Tensor:
        """Write these samples (n, c, *size), and return them as read back."""
        self.begin()
        stored = x.cpu().clone()
        for at, sample in enumerate(samples):
            path = self.folder / self.path(set_name, level, sample)
            path.parent.mkdir(parents=True, exist_ok=True)
            self.format.write(path, stored[at])
            stored[at] = self.format.read(path)
        return stored

    def drop(self, set_name: str, level: str, sample: int) -> None:
        """Delete the file of a sample that is not at the level."""
        for file in self.format.files(self.folder / self.path(set_name, level, sample)):
            file.unlink(missing_ok=True)

    def columns(self, set_name: str, level: str, sample: int) -> dict[str, Any]:
        """The columns that describe a file."""
        path = self.path(set_name, level, sample)
        return {"reached": True, "file": path.as_posix(), "sha256": self.format.digest(self.folder / path)}

    def changed(
        self, set_name: str, level: str, sample: int, assignment: Tensor, distances: Mapping[str, float]
    ) -> dict[str, Any]:
        """The columns that describe a file and its distortion."""
        facts = {"assignment": assignment.tolist(), "distortion": main_distortion(assignment, self.filters)}
        return {**self.columns(set_name, level, sample), **facts, **distances}

    def originals(self) -> Iterator[dict[str, Any]]:
        """Write the unchanged samples, shared by all sets, and yield their rows."""
        samples = range(self.first, self.first + len(self.batch))
        assert torch.equal(self.write(ORIGINALS, "", samples, self.batch.x), self.batch.x)
        for sample in samples:
            row = self.blank(sample, ORIGINAL) | self.columns(ORIGINALS, "", sample)
            yield row | dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0)

    def blank(self, sample: int, level: str) -> dict[str, Any]:
        """A row with every column."""
        at = sample - self.first
        return {
            "id": self.batch.ids[at], "place": sample, "label": int(self.batch.y[at]), "victim": "", "level": level,
            "level_kind": level, "level_value": None, "reached": False, "reason": "", "status": "", "file": "", "row": None,
            "sha256": "", "predicted": None, "probability": None, "distortion": "", **dict.fromkeys(NAMES, math.nan),
            **dict.fromkeys(COUNTS, 0), "policy": "", "seed": None, "outputs": None, "assignment": None,
        }  # fmt: skip


def row_of(distances: Mapping[str, Tensor], i: int) -> dict[str, float]:
    return {name: float(distances[name][i]) for name in NAMES}


def main_distortion(assignment: Tensor, filters: Sequence[str]) -> str:
    """The filter on most patches; on a tie the first in the palette."""
    counts = Counter(filters[entry - 1] for entry in assignment.tolist() if entry)
    return max(counts, key=lambda name: (counts[name], -filters.index(name)), default="")
