"""The effect of removing each region on the class's probability, with an interval; and sentences about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from scipy.stats import t as student
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch

LEVEL = 0.9  # coverage of the intervals


@dataclass(frozen=True)
class RegionEffects:
    """The drop of the class's probability when a region is removed: mean and deviation over random contexts."""

    grid: PatchGrid
    effect: Tensor  # (n, g)
    deviation: Tensor  # (n, g)
    freedom: float = torch.inf  # degrees of freedom: few measurements mean longer tails

    def half_width(self, level: float = LEVEL) -> Tensor:
        """(n, g): the interval is effect ± this."""
        return float(student.ppf(0.5 + level / 2, self.freedom)) * self.deviation

    def settled(self, level: float = LEVEL) -> Tensor:
        """(n, g) bool: whether the interval excludes 0."""
        return self.effect.abs() > self.half_width(level)

    def statements(self, row: int, class_name: str, rate: float | None = None, least: float = 0.01) -> list[str]:
        """A sentence per settled region with at least this effect, largest first, and the number of unsettled ones."""
        effects, widths, settled = self.effect[row], self.half_width()[row], self.settled()[row]
        order = effects.abs().argsort(descending=True).tolist()
        lines = [
            f"removing {self.place(i, rate)} {'lowers' if effects[i] > 0 else 'raises'} P({class_name}) "
            f"by {abs(float(effects[i])):.2f} ± {float(widths[i]):.2f}"
            for i in order
            if settled[i] and abs(float(effects[i])) >= least
        ]
        return [*lines, f"{int((~settled).sum())} of {len(settled)} regions are not settled: their intervals include 0"]

    def place(self, index: int, rate: float | None = None) -> str:
        """A region in words: seconds of a signal, rows and columns of an image, frames of a clip."""
        *frames, last = self.grid.box(index)
        if not frames:
            if rate:
                return f"{last.start / rate:.2f}-{last.stop / rate:.2f} s"
            return f"points {last.start}-{last.stop - 1}"
        names = ("frames", "rows", "columns")[-len(self.grid.size) :]
        return ", ".join(f"{n} {cut.start}-{cut.stop - 1}" for n, cut in zip(names, self.grid.box(index), strict=True))

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

    @staticmethod
    def join(parts: Sequence[RegionEffects]) -> RegionEffects:
        effect, deviation = (torch.cat([getattr(part, name) for part in parts]) for name in ("effect", "deviation"))
        return replace(parts[0], effect=effect, deviation=deviation)
