"""The effect of removing each part of an input on the class's probability, with intervals: as rows, tables and sentences."""

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
NOTES = {
    REGIONS: "Brackets hold 90% intervals. The first is that of another removal of the same region with edges moved by up to a "
    "tenth of its sides. The last column is the mean drop, also that of the map, while random other places are removed too: it "
    "is larger than that of the region alone if the model has several reasons. Regions whose first interval includes no change "
    "are left out.",
    WAVES: "Brackets hold the range over all ways to cut the wave. The file waves.csv has all samples.",
}


@dataclass(frozen=True)
class Effects(Rows):
    """The class's probability before and after each of p parts is removed: regions, or waves in groups of leads."""

    kind: str  # REGIONS or WAVES
    parts: tuple[tuple[str, ...], ...]  # p: a region, or a wave and its leads
    phrases: tuple[str, ...]  # p: the parts in a sentence
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

    def statements(self, row: int, name: str) -> list[str]:
        """A sentence for each settled part with an effect worth it, largest first, and how many are settled."""
        effects, settled = self.effect[row].tolist(), self.settled()[row].tolist()
        order = sorted(range(len(self.parts)), key=lambda part: -abs(effects[part]))
        worth = [part for part in order if settled[part] and abs(effects[part]) >= LEAST]
        lines = [f"removing {self.phrases[part]} {self._change(row, part, name)}" for part in worth]
        missing = [phrase for phrase, there in zip(self.phrases, self.there[row].tolist(), strict=True) if not there]
        absent = dict.fromkeys(phrase.partition(" in ")[0] for phrase in missing)
        lines += [f"no place was found for {' and '.join(absent)}"] if absent else []
        what = "regions" if self.kind == REGIONS else "parts"
        clear = "the intervals of these exclude no change"
        lines.append(f"{sum(settled)} of {len(settled)} {what} change it when they are removed alone: {clear}")
        if self.mean is None or self.width is None:
            return lines
        most = int(self.mean[row].abs().argmax())
        mean, width = float(self.mean[row, most]), float(self.width[row, most])
        alike = f"{'lowers' if mean > 0 else 'raises'} it by {abs(mean):.2f} ± {width:.2f} on average"
        place = self.phrases[most].removesuffix(" alone")
        return [*lines, f"removing {place} while random other places are removed too {alike}"]

    def _change(self, row: int, part: int, name: str) -> str:
        """What a removal does to the class's probability; the interval is rounded outwards, to hold what it held."""
        before, after = float(self.before[row]), float(self.after[row, part])
        over = f"over {self.cuts} ways to cut it" if self.cuts else f"{LEVEL:.0%} interval"
        low, high = math.floor(float(self.low[row, part]) * 1000), math.ceil(float(self.high[row, part]) * 1000)
        change = f"{'lowers' if after < before else 'raises'} P({name}) from {before:.2f} to {after:.2f}"
        return f"{change} ({over}: {low / 1000:.3f} to {high / 1000:.3f})"

    def rows(self, ids: Sequence[str], names: Sequence[str]) -> list[dict[str, Any]]:
        """One row for each sample (n ids and class names) and part that it has."""
        heads, settled = ("region",) if self.kind == REGIONS else ("wave", "leads"), self.settled()
        ends = {"after": self.after, "low": self.low, "high": self.high}
        means = {}
        if self.mean is not None and self.width is not None:
            means = {"mean_effect": self.mean, "mean_low": self.mean - self.width, "mean_high": self.mean + self.width}
        return [
            {"id": ids[row], "class": names[row], **dict(zip(heads, part, strict=True))}
            | {"before": _rounded(self.before[row])}
            | {name: _rounded(values[row, at]) for name, values in ends.items()}
            | {"settled": bool(settled[row, at])}
            | {name: _rounded(values[row, at]) for name, values in means.items()}
            | ({"cuts": self.cuts} if self.cuts else {})
            for row in range(len(self.before))
            for at, part in enumerate(self.parts)
            if self.there[row, at]
        ]

    def blocks(self, ids: Sequence[str], names: Sequence[str], samples: int) -> list[Block]:
        """Tables of the first samples, and how to read them."""
        count = min(samples, len(ids))
        note = Text(NOTES[self.kind], quiet=True)
        if self.kind == REGIONS:
            return [self._regions(ids[:count], names), note]
        return [*(self._waves(row, ids[row], names[row]) for row in range(count) if self.there[row].any()), note]

    def _estimate(self, row: int, part: int) -> Estimate:
        return Estimate(*(float(end[row, part]) for end in (self.after, self.low, self.high)))

    def _regions(self, ids: Sequence[str], names: Sequence[str]) -> Table:
        """The settled regions, those with the largest effect first in each sample."""
        assert self.mean is not None
        assert self.width is not None
        rows: list[Cells] = []
        for row, sample in enumerate(ids):
            for part in self.effect[row].abs().argsort(descending=True, stable=True).tolist():
                if self.settled()[row, part]:
                    mean, width = float(self.mean[row, part]), float(self.width[row, part])
                    found = [self._estimate(row, part), Estimate(mean, mean - width, mean + width)]
                    rows.append([sample, names[row], self.parts[part][0], float(self.before[row]), *found])
        alone, among = "after removing\nit alone", "mean drop among\nother removals"
        head = ["sample", "class", "region", "probability", alone, among]
        return Table(head, rows, "Regions that change the class's probability alone")

    def _waves(self, row: int, sample: str, name: str) -> Table:
        """Waves down, groups of leads across: the class's probability after the removal."""
        waves, leads = (list(dict.fromkeys(part[axis] for part in self.parts)) for axis in (0, 1))
        at = {part: number for number, part in enumerate(self.parts)}
        found = [wave for wave in waves if self.there[row, at[wave, leads[0]]]]
        rows: list[Cells] = [[wave, *(self._estimate(row, at[wave, group]) for group in leads)] for wave in found]
        title = f"{sample}: P({name}) is {float(self.before[row]):.2f}; after removing a wave in some leads"
        return Table(["removed", *leads], rows, title)


def _rounded(value: Tensor) -> float:
    return round(float(value), 7)


def interval(cuts: Tensor, width: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (n, p, k) after each cut, the first as it is -> that (n, p), with ends that are `width` (n, p) away."""
    after = cuts[:, :, 0]
    return after, (after - width).clamp(min=0), (after + width).clamp(max=1)


def span(cuts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (n, p, k) after each cut, the first as it is -> that (n, p), with the range over all cuts."""
    return cuts[:, :, 0], cuts.amin(2), cuts.amax(2)
