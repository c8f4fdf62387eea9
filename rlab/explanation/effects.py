"""The effect of removing each part of an input on the class's probability, with intervals: as rows, a table and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlab.core.batched import Rows
from rlab.present.page import Block, Text
from rlab.present.table import Cells, Table
from rlab.stats import Estimate

LEVEL = 0.9  # coverage of the intervals of regions
ROUNDING = 1e-6  # by which a probability may differ in another batch
LEAST = 0.01  # smallest change of a probability worth a sentence
REGIONS, WAVES = "regions", "waves"
HEADS = {REGIONS: ("region",), WAVES: ("wave", "leads")}  # of the columns that name a part
NAMES = {"P": "the P wave", "QRS": "the QRS complex", "ST": "the ST segment", "T": "the T wave"}
NOTES = {
    REGIONS: "Brackets hold 90% intervals. The first is that of another removal of the same region with edges moved by up to a "
    "tenth of its sides. The last column is the mean drop, also that of the map, while random other places are removed too: it "
    "is larger than that of the region alone if the model has several reasons. Regions whose first interval includes no change "
    "are left out.",
    WAVES: "Brackets hold the range over all ways to cut the wave. Parts whose range includes no change are left out; the file "
    "waves.csv has all of them.",
}


@dataclass(frozen=True)
class Effects(Rows):
    """The class's probability before and after each of p parts is removed: regions, or waves in groups of leads."""

    kind: str  # REGIONS or WAVES
    parts: tuple[tuple[str, ...], ...]  # p: a region, or a wave and its leads
    before: Tensor  # (n,)
    after: Tensor  # (n, p)
    low: Tensor  # (n, p): the interval of `after` over other cuts of the same part
    high: Tensor  # (n, p)
    there: Tensor  # (n, p) bool: whether the sample has the part
    cuts: int = 0  # ways to cut each part, if the interval is their range
    mean: Tensor | None = None  # (n, p): the mean drop while random other places are removed too
    width: Tensor | None = None  # (n, p): its interval is `mean` ± this

    @property
    def effect(self) -> Tensor:
        """(n, p): by how much removing the part alone lowers the probability."""
        return self.before[:, None] - self.after

    def settled(self) -> Tensor:
        """(n, p) bool: whether the interval excludes the probability before."""
        before = self.before[:, None]
        return ((before < self.low - ROUNDING) | (before > self.high + ROUNDING)) & self.there

    def ordered(self, row: int) -> list[int]:
        """The settled parts of a sample, the largest effect first."""
        order = self.effect[row].abs().argsort(descending=True, stable=True)
        return order[self.settled()[row, order]].tolist()

    def statements(self, row: int, name: str) -> list[str]:
        """A sentence for each settled part with an effect worth it, largest first, and how many are settled."""
        effects, settled, waves = self.effect[row].tolist(), self.ordered(row), self.kind == WAVES
        lines = []
        for part in settled:
            if abs(effects[part]) >= LEAST:
                what = (
                    f"{NAMES[self.parts[part][0]]} in {self.parts[part][1]}"
                    if waves
                    else f"{self.parts[part][0]} alone"
                )
                lines.append(f"removing {what} {self._change(row, part, name)}")
        there = zip(self.parts, self.there[row].tolist(), strict=True)
        if absent := dict.fromkeys(NAMES[part[0]] for part, found in there if not found):
            lines.append(f"no place was found for {' and '.join(absent)}")
        count = f"{len(settled)} of {len(self.parts)} {'parts' if waves else 'regions'}"
        lines.append(f"{count} change it when they are removed alone: the intervals of these exclude no change")
        if self.mean is not None and self.width is not None:
            most = int(self.mean[row].abs().argmax())
            mean, width = float(self.mean[row, most]), float(self.width[row, most])
            alike = f"{'lowers' if mean > 0 else 'raises'} it by {abs(mean):.2f} ± {width:.2f} on average"
            lines.append(f"removing {self.parts[most][0]} while random other places are removed too {alike}")
        return lines

    def _change(self, row: int, part: int, name: str) -> str:
        """What a removal does to the class's probability; the interval is rounded outwards, to hold what it held."""
        before, after = float(self.before[row]), float(self.after[row, part])
        over = f"over {self.cuts} ways to cut it" if self.cuts else f"{LEVEL:.0%} interval"
        low, high = math.floor(float(self.low[row, part]) * 1000), math.ceil(float(self.high[row, part]) * 1000)
        change = f"{'lowers' if after < before else 'raises'} P({name}) from {before:.2f} to {after:.2f}"
        return f"{change} ({over}: {low / 1000:.3f} to {high / 1000:.3f})"

    def rows(self, ids: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
        """One row for each sample (n ids and class names) and part that it has."""
        settled, values = self.settled(), {"after": self.after, "low": self.low, "high": self.high}
        if self.mean is not None and self.width is not None:
            means = {"mean_effect": self.mean, "mean_low": self.mean - self.width, "mean_high": self.mean + self.width}
            values |= means
        return [
            {"id": ids[row], "class": names[row], **dict(zip(HEADS[self.kind], part, strict=True))}
            | {"before": round(float(self.before[row]), 7)}
            | {name: round(float(value[row, at]), 7) for name, value in values.items()}
            | {"settled": bool(settled[row, at])}
            | ({"cuts": self.cuts} if self.cuts else {})
            for row in range(len(self.before))
            for at, part in enumerate(self.parts)
            if self.there[row, at]
        ]

    def blocks(self, ids: Sequence[str], names: Sequence[str], samples: int) -> list[Block]:
        """A table of the settled parts of the first samples, and how to read it."""
        rows: list[Cells] = []
        for row in range(min(samples, len(ids))):
            for part in self.ordered(row):
                after = Estimate(*(float(end[row, part]) for end in (self.after, self.low, self.high)))
                cells: list[Any] = [ids[row], names[row], *self.parts[part], float(self.before[row]), after]
                if self.mean is not None and self.width is not None:
                    mean, width = float(self.mean[row, part]), float(self.width[row, part])
                    cells.append(Estimate(mean, mean - width, mean + width))
                rows.append(cells)
        head = ["sample", "class", *HEADS[self.kind], "probability", "after removing\nit alone"]
        head += [] if self.mean is None else ["mean drop among\nother removals"]
        title = f"{self.kind.capitalize()} that change the class's probability alone"
        table = Table(head, rows, title, words=2 + len(HEADS[self.kind]))
        return [table, Text(NOTES[self.kind], quiet=True)]
