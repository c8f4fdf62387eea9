"""The effect of removing a region, or a wave in a group of leads, on the class's probability, with an interval, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from scipy.stats import t as student
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.present.page import Block, Text
from rlab.present.table import Table
from rlab.stats import Estimate

LEVEL = 0.9  # coverage of the intervals
NAMES = {"P": "the P wave", "QRS": "the QRS complex", "ST": "the ST segment", "T": "the T wave"}
ROUNDING = 1e-6  # by which a probability may differ in another batch
LEAST = 0.01  # smallest change of a probability worth a sentence
SHOWN = 12  # samples with a table on a page
Row = Mapping[str, Any]


@dataclass(frozen=True)
class RegionEffects(Rows):
    """The drop of the class's probability when a region is removed: mean and deviation over random contexts."""

    grid: PatchGrid
    effect: Tensor  # (n, g)
    deviation: Tensor  # (n, g)
    freedom: float = torch.inf  # degrees of freedom: few measurements mean longer tails

    def half_width(self) -> Tensor:
        """(n, g): the interval is effect ± this."""
        return float(student.ppf(0.5 + LEVEL / 2, self.freedom)) * self.deviation

    def settled(self) -> Tensor:
        """(n, g) bool: whether the interval excludes 0."""
        return self.effect.abs() > self.half_width()

    def statements(self, row: int, class_name: str, rate: float | None = None) -> list[str]:
        """A sentence per settled region with an effect worth it, largest first, and the number of unsettled ones."""
        effects, widths, settled = self.effect[row], self.half_width()[row], self.settled()[row]
        order = effects.abs().argsort(descending=True).tolist()
        lines = [
            f"removing {self.place(i, rate)} {'lowers' if effects[i] > 0 else 'raises'} P({class_name}) "
            f"by {abs(float(effects[i])):.2f} ± {float(widths[i]):.2f}"
            for i in order
            if settled[i] and abs(float(effects[i])) >= LEAST
        ]
        return [*lines, f"{int(settled.sum())} of {len(settled)} regions are settled: their intervals exclude 0"]

    def place(self, index: int, rate: float | None = None) -> str:
        """A region in words: seconds of a signal, rows and columns of an image, frames of a clip."""
        box = self.grid.box(index)
        if len(box) == 1 and rate:
            return f"{box[0].start / rate:.2f}-{box[0].stop / rate:.2f} s"
        names = ("points",) if len(box) == 1 else ("frames", "rows", "columns")[-len(box) :]
        return ", ".join(f"{name} {cut.start}-{cut.stop - 1}" for name, cut in zip(names, box, strict=True))

    def rows(self, batch: Batch, labels: Tensor) -> list[dict[str, str | float | bool]]:
        """One table row per sample and region; an effect above 0 supports the class."""
        widths, settled = self.half_width(), self.settled()
        return [
            {
                "id": batch.ids[row],
                "class": batch.label_name(int(labels[row])),
                "region": self.place(i, batch.rate if batch.kind == "signal" else None),
                "effect": round(float(self.effect[row, i]), 7),
                "low": round(float(self.effect[row, i] - widths[row, i]), 7),
                "high": round(float(self.effect[row, i] + widths[row, i]), 7),
                "settled": bool(settled[row, i]),
            }
            for row in range(len(batch))
            for i in range(len(self.grid))
        ]


@dataclass(frozen=True)
class WaveEffects(Rows):
    """The class's probability before and after a wave was removed in a group of leads: mean and deviation over its cuts."""

    waves: tuple[str, ...]  # w
    groups: tuple[str, ...]  # g
    before: Tensor  # (n,)
    after: Tensor  # (n, w, g)
    deviation: Tensor  # (n, w, g) of the mean
    found: Tensor  # (n, w) bool: whether the record has the wave
    freedom: int  # degrees of freedom

    @property
    def effect(self) -> Tensor:
        """(n, w, g): by how much removing the wave lowers the probability."""
        return self.before[:, None, None] - self.after

    def half_width(self) -> Tensor:
        """(n, w, g): the interval is `after` ± this, within 0 and 1."""
        return float(student.ppf(0.5 + LEVEL / 2, self.freedom)) * self.deviation

    def settled(self) -> Tensor:
        """(n, w, g) bool: whether the interval excludes the probability before."""
        return (self.effect.abs() > self.half_width() + ROUNDING) & self.found[:, :, None]

    def statements(self, row: int, class_name: str) -> list[str]:
        """A sentence per settled part, largest effect first, and the number of parts without one."""
        parts = sorted(self._parts(row), key=lambda part: -abs(part["before"] - part["after"]))
        told = [part for part in parts if part["settled"] and abs(part["before"] - part["after"]) >= LEAST]
        lines = [
            f"removing {NAMES[part['wave']]} in {part['leads']} "
            f"{'lowers' if part['after'] < part['before'] else 'raises'} P({class_name}) from {part['before']:.2f} to "
            f"{part['after']:.2f} ({LEVEL:.0%} interval {part['low']:.2f} to {part['high']:.2f})"
            for part in told
        ]
        missing = [NAMES[wave] for wave, found in zip(self.waves, self.found[row].tolist(), strict=True) if not found]
        absent = [f"no place was found for {' and '.join(missing)}"] if missing else []
        rest = f"removing any of the other {len(parts) - len(told)} parts changes it by less than {LEAST} or is not settled"
        return [*lines, *absent, *([rest] if len(told) < len(parts) else [])]

    def rows(self, batch: Batch, labels: Tensor) -> list[dict[str, Any]]:
        """One table row per sample, wave and group of leads; waves that were not found are left out."""
        return [
            {"id": batch.ids[row], "class": batch.label_name(int(labels[row])), **part}
            for row in range(len(batch))
            for part in self._parts(row)
        ]

    def _parts(self, row: int) -> list[dict[str, Any]]:
        width, settled = self.half_width()[row], self.settled()[row]
        low, high = (self.after[row] - width).clamp(min=0), (self.after[row] + width).clamp(max=1)
        return [
            {
                "wave": wave,
                "leads": leads,
                "before": round(float(self.before[row]), 7),
                "after": round(float(self.after[row, w, g]), 7),
                "low": round(float(low[w, g]), 7),
                "high": round(float(high[w, g]), 7),
                "settled": bool(settled[w, g]),
            }
            for w, wave in enumerate(self.waves)
            for g, leads in enumerate(self.groups)
            if self.found[row, w]
        ]


def wave_tables(stored: Sequence[Row], limit: int = SHOWN) -> list[Block]:
    """For each of the first samples a table of waves and groups of leads: the class's probability after the removal."""
    blocks: list[Block] = []
    for (sample, name), parts in groupby(stored, key=lambda row: (row["id"], row["class"])):
        own = {(row["wave"], row["leads"]): row for row in parts}
        waves, leads = (list(dict.fromkeys(key[axis] for key in own)) for axis in (0, 1))
        before = float(next(iter(own.values()))["before"])
        cells = {at: Estimate(*(float(row[end]) for end in ("after", "low", "high"))) for at, row in own.items()}
        rows = [[wave, *(cells[wave, group] for group in leads)] for wave in waves]
        title = f"{sample}: P({name}) is {before:.2f}; after removing a wave in some leads"
        blocks.append(Table(["removed", *leads], rows, title))
    about = f"Brackets hold {LEVEL:.0%} intervals over ways to cut the wave. The file waves.csv has all samples."
    return [*blocks[:limit], Text(about, quiet=True)]
