"""The effect of removing a region, or a wave in a group of leads, on the class's probability, with an interval, and in words."""

from __future__ import annotations

import math
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
    """What removing each region does to the class's probability: alone, and on average while random others are removed too."""

    grid: PatchGrid
    before: Tensor  # (n,)
    cuts: Tensor  # (n, g, k) after removing the region alone: as it is, then with its edges moved
    mean: Tensor  # (n, g) mean drop while random other places are removed too
    deviation: Tensor  # (n, g) of the mean
    freedom: float = torch.inf  # degrees of freedom: few measurements mean longer tails

    @property
    def effect(self) -> Tensor:
        """(n, g): by how much removing the region alone lowers the probability."""
        return self.before[:, None] - self.cuts[:, :, 0]

    def half_width(self) -> Tensor:
        """(n, g): the interval of the effect of another cut is `effect` ± this."""
        moved = self.cuts[:, :, 1:] - self.cuts[:, :, :1]
        return _quantile(moved.shape[2]) * moved.square().mean(2).sqrt()

    def mean_half_width(self) -> Tensor:
        """(n, g): the interval of the mean is `mean` ± this."""
        return _quantile(self.freedom) * self.deviation

    def settled(self) -> Tensor:
        """(n, g) bool: whether the interval of the effect excludes 0."""
        return self.effect.abs() > self.half_width() + ROUNDING

    def statements(self, row: int, class_name: str, rate: float | None = None) -> list[str]:
        """A sentence per settled region with an effect worth it, largest first, how many are settled, and the largest mean."""
        effects, means = self.effect[row].tolist(), self.mean[row]
        settled, most = self.settled()[row].tolist(), int(means.abs().argmax())
        parts = list(zip(settled, effects, self._parts(row), strict=True))
        lines = [
            f"removing {self.place(i, rate)} alone {_change(part, class_name)}"
            for i, (clear, effect, part) in sorted(enumerate(parts), key=lambda one: -abs(one[1][1]))
            if clear and abs(effect) >= LEAST
        ]
        clear = "their intervals exclude no change"
        lines.append(f"{sum(settled)} of {len(settled)} regions change it when they are removed alone: {clear}")
        mean, width = float(means[most]), float(self.mean_half_width()[row, most])
        way = f"{'lowers' if mean > 0 else 'raises'} it by {abs(mean):.2f} ± {width:.2f} on average"
        return [*lines, f"removing {self.place(most, rate)} while random other places are removed too {way}"]

    def place(self, index: int, rate: float | None = None) -> str:
        """A region in words: seconds of a signal, rows and columns of an image, frames of a clip."""
        box = self.grid.box(index)
        if len(box) == 1 and rate:
            return f"{box[0].start / rate:.2f}-{box[0].stop / rate:.2f} s"
        names = ("points",) if len(box) == 1 else ("frames", "rows", "columns")[-len(box) :]
        return ", ".join(f"{name} {cut.start}-{cut.stop - 1}" for name, cut in zip(names, box, strict=True))

    def rows(self, batch: Batch, labels: Tensor) -> list[dict[str, str | float | bool]]:
        """One table row per sample and region; a mean effect above 0 supports the class."""
        low, high = self.mean - self.mean_half_width(), self.mean + self.mean_half_width()
        return [
            {
                "id": batch.ids[row],
                "class": batch.label_name(int(labels[row])),
                "region": self.place(i, batch.rate if batch.kind == "signal" else None),
                **part,
                "mean_effect": round(float(self.mean[row, i]), 7),
                "mean_low": round(float(low[row, i]), 7),
                "mean_high": round(float(high[row, i]), 7),
            }
            for row in range(len(batch))
            for i, part in enumerate(self._parts(row))
        ]

    def _parts(self, row: int) -> list[dict[str, float | bool]]:
        """The probability before and after each region alone is removed, with its interval."""
        after, width, settled = self.cuts[row, :, 0], self.half_width()[row], self.settled()[row]
        ends = after, (after - width).clamp(min=0), (after + width).clamp(max=1)
        return [
            {"before": _rounded(self.before[row])}
            | {name: _rounded(end[i]) for name, end in zip(("after", "low", "high"), ends, strict=True)}
            | {"settled": bool(settled[i])}
            for i in range(len(self.grid))
        ]


@dataclass(frozen=True)
class WaveEffects(Rows):
    """The class's probability before and after a wave is removed in a group of leads, for several ways to cut the wave."""

    waves: tuple[str, ...]  # w
    groups: tuple[str, ...]  # g
    before: Tensor  # (n,)
    cuts: Tensor  # (n, w, g, k) after removing the wave: as it was found, then with other windows and edges
    found: Tensor  # (n, w) bool: whether the record has the wave

    @property
    def after(self) -> Tensor:
        """(n, w, g): the probability after removing the wave as it was found."""
        return self.cuts[..., 0]

    @property
    def effect(self) -> Tensor:
        """(n, w, g): by how much removing the wave lowers the probability."""
        return self.before[:, None, None] - self.after

    def settled(self) -> Tensor:
        """(n, w, g) bool: whether the range over all cuts excludes the probability before."""
        low, high, before = self.cuts.amin(3) - ROUNDING, self.cuts.amax(3) + ROUNDING, self.before[:, None, None]
        return ((before < low) | (before > high)) & self.found[:, :, None]

    def statements(self, row: int, class_name: str) -> list[str]:
        """A sentence per settled part, largest effect first, and the number of parts without one."""
        parts = sorted(self._parts(row), key=lambda part: -abs(part["before"] - part["after"]))
        told = [part for part in parts if part["settled"] and abs(part["before"] - part["after"]) >= LEAST]
        lines = [f"removing {NAMES[part['wave']]} in {part['leads']} {_change(part, class_name)}" for part in told]
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
        settled, cuts = self.settled()[row], self.cuts[row]
        ends = {"after": cuts[..., 0], "low": cuts.amin(2), "high": cuts.amax(2)}
        return [
            {"wave": wave, "leads": leads, "before": _rounded(self.before[row])}
            | {name: _rounded(end[w, g]) for name, end in ends.items()}
            | {"settled": bool(settled[w, g]), "cuts": cuts.shape[2]}
            for w, wave in enumerate(self.waves)
            for g, leads in enumerate(self.groups)
            if self.found[row, w]
        ]


def _change(part: Row, class_name: str) -> str:
    """What a removal does to the class's probability; the interval is rounded outwards, to hold what it held."""
    before, after, low, high = (float(part[name]) for name in ("before", "after", "low", "high"))
    over = f"over {part['cuts']} ways to cut it" if "cuts" in part else f"{LEVEL:.0%} interval"
    ends = f"{math.floor(low * 1000) / 1000:.3f} to {math.ceil(high * 1000) / 1000:.3f}"
    return (
        f"{'lowers' if after < before else 'raises'} P({class_name}) from {before:.2f} to {after:.2f} ({over}: {ends})"
    )


def _quantile(freedom: float) -> float:
    return float(student.ppf(0.5 + LEVEL / 2, freedom))


def _rounded(value: Tensor) -> float:
    return round(float(value), 7)


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
    about = "Brackets hold the range over all ways to cut the wave. The file waves.csv has all samples."
    return [*blocks[:limit], Text(about, quiet=True)]
