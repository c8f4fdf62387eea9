"""The leads of a signal on a sheet: below each other or in columns, or twelve of them as clinicians read them.

Signals in millivolts lie on ECG paper of 25 mm/s and 10 mm/mV. The units of a sheet are CSS pixels.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from rlab.present.inline import figure_svg
from rlab.present.layers import Array, Layers, Mark, Rectangle, magnification, map_colours
from rlab.present.style import BEFORE, CHANGE, COARSE, FINE, INK, LINE, PAPER, QUIET, STYLE, plain
from rlab.present.waves import waves

Part = Literal["paper", "heat", "before", "after", "change"]
BOX = (0.2, 0.5)  # seconds and millivolts of a large box (5 mm); small boxes are a fifth
SHAPE = 10 / 25  # mm per mV over mm per second
WIDE, HIGH = 960.0, 560.0  # of a sheet
GAP, HEAD, FOOT, ABOVE = 12.0, 22.0, 26.0, 26.0  # between columns, above each lead, below all, above all for waves
MOST_LEADS, LEAST = 16, 40.0  # on a sheet; the least height on ECG paper
MM = 96 / 25.4
LONGEST, RHYTHM, PULSE, ROWS = 10.0, "ii", 0.5, 3  # seconds of a clinical sheet, its rhythm strip, calibration, rows
LOWEST, HIGHEST = 2.0, 4.0  # mV of a row; a larger wave runs into the next row, as on paper
CLINICAL = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")


@dataclass(frozen=True)
class Cell:
    """A stretch of a lead in points, and its upper left corner."""

    lead: int
    start: int
    stop: int
    left: float
    top: float
    middle: float  # the value halfway down


@dataclass(frozen=True)
class Sheet:
    """Where the leads of a signal lie."""

    layers: Layers
    cells: Sequence[Cell]
    size: tuple[float, float]
    high: float  # height of a lead
    point: float  # width of a point
    unit: float  # height of a unit
    paper: bool = False
    clinical: bool = False

    @property
    def note(self) -> str:
        whole, rate = self.layers.x.shape[1], self.layers.rate or 1.0
        if self.clinical:
            cut = f"; the first {LONGEST:g} s of {whole / rate:.3g} s" if self.cells[-1].stop < whole else ""
            return f"25 mm/s, 10 mm/mV{cut}"
        if self.paper:
            note = f"Large boxes are {BOX[0]} s × {BOX[1]} mV, as on paper of 25 mm/s and 10 mm/mV."
        else:
            note = f"Each lead is {self.high / self.unit:.3g} {self.layers.unit}".rstrip() + " high."
        left_out = len(self.layers.x) - len(self.cells)
        return note + (f" These {len(self.cells)} of {len(self.layers.x)} channels matter most." if left_out else "")

    @cached_property
    def factor(self) -> int:
        """The magnification of the difference."""
        return magnification(2 * float(np.abs(self.layers.change).max()) * self.unit / self.high)

    @property
    def marks(self) -> list[Mark]:
        """The marks of the signal in units of the sheet."""
        placed = (
            replace(mark, places=[p for each in mark.places for p in self._placed(each)]) for mark in self.layers.marks
        )
        return [mark for mark in placed if mark.places]

    def _placed(self, place: Rectangle) -> list[Rectangle]:
        at, lead, length, leads = place
        found: list[Rectangle] = []
        for cell in self.cells:
            start, stop = max(at, cell.start), min(at + length, cell.stop)
            top, foot = max(lead - cell.lead, 0.0), min(lead + leads - cell.lead, 1.0)
            if start < stop and top < foot:
                left = cell.left + (start - cell.start) * self.point
                found.append((left, cell.top + top * self.high, (stop - start) * self.point, (foot - top) * self.high))
        return found

    def svg(self, about: str, *parts: Part) -> Markup:
        """Some parts for a page, one unit of the sheet a pixel."""
        with matplotlib.rc_context({**STYLE, "path.simplify_threshold": 0.4}):
            figure = Figure((self.size[0] / 72, self.size[1] / 72))
            self.draw(figure.add_axes((0, 0, 1, 1)), parts)
            return figure_svg(figure, about)

    def draw(self, ax: Axes, parts: Collection[Part] = ("paper", "heat", "before", "after")) -> None:
        ax.set_axis_off()
        if "paper" in parts:
            self._draw_paper(ax)
        lines: dict[Part, tuple[str, float]] = {"before": (BEFORE, 0), "after": (INK, 0), "change": (CHANGE, 0)}
        for cell in self.cells:
            cut = slice(cell.start, cell.stop)
            left, right = cell.left, cell.left + (cell.stop - cell.start) * self.point
            if "heat" in parts and self.layers.heat is not None:
                heat = map_colours(self.layers.heat[cell.lead, None, cut], self.layers.signed)
                extent = (left, right, cell.top + 0.95 * self.high, cell.top + 0.05 * self.high)
                ax.imshow(heat, extent=extent, aspect="auto", interpolation="none", zorder=1)
            across = left + (np.arange(cell.stop - cell.start) + 0.5) * self.point
            for part, values in self._lines(cell).items():
                if part in parts:
                    down = cell.top + self.high / 2 - (values[cut] - cell.middle) * self.unit
                    ax.plot(across, down, color=lines[part][0], linewidth=1.0, gid=f"{part}-{cell.lead}", zorder=4)
        ax.set(xlim=(0, self.size[0]), ylim=(self.size[1], 0), aspect="equal")

    def _lines(self, cell: Cell) -> dict[Part, Array]:
        """The lines of a lead: the perturbed one and the difference only where they differ, with the neighbours."""
        x0, change = self.layers.x[cell.lead], self.layers.change[cell.lead]
        differs = np.convolve(change != 0, [1, 1, 1], "same") > 0
        after, magnified = x0 + change, cell.middle + self.factor * change
        return {
            "before": x0,
            **{"after": np.where(differs, after, np.nan), "change": np.where(differs, magnified, np.nan)},
        }

    def _draw_paper(self, ax: Axes) -> None:
        width, height = self.size
        rate, first = self.layers.rate or 1.0, self.cells[0]
        words: dict[str, Any] = {"fontsize": 11, "color": QUIET, "zorder": 5}
        if self.paper:
            ax.add_patch(
                PathPatch(Path([(0, 0), (width, 0), (width, height), (0, height)]), facecolor=PAPER, linewidth=0)
            )
            across, down = BOX[0] * rate * self.point, BOX[1] * self.unit
            for parts, colour, wide in ((5, FINE, 0.5), (1, COARSE, 0.9)):
                if across / parts >= 3.5:
                    _draw_grid(
                        ax,
                        np.arange(0, width, across / parts),
                        np.arange(0, height, down / parts),
                        self.size,
                        colour,
                        wide,
                    )
        else:
            edges = [edge for cell in self.cells for edge in (cell.top, cell.top + self.high)]
            _draw_grid(ax, np.linspace(0, width, 11), np.array(edges), self.size, LINE, 0.8)
        for cell in self.cells:
            at = (cell.left + 3, cell.top + (20 if self.clinical else -6))
            ax.text(*at, plain(self.layers.lead(cell.lead), 24), weight="bold", **{**words, "color": INK})
        if self.clinical:
            pulse = np.array([[0.1, 0], [0.15, 0], [0.15, 1], [0.35, 1], [0.35, 0], [0.4, 0]])
            for top in sorted({cell.top for cell in self.cells}):
                y = top + self.high / 2 - pulse[:, 1] * self.unit
                ax.plot(pulse[:, 0] * rate * self.point, y, color=INK, linewidth=1.0)
            return
        length = self.layers.x.shape[1]
        for share, where in ((0.0, "left"), (0.5, "center"), (1.0, "right")):
            said = f"{length / rate * share:.3g}{' s' if self.layers.rate else ''}"
            ax.text(first.left + length * self.point * share, height - 8, said, ha=where, **words)
        inside = [at for at in self.layers.r_peaks if 0 <= at < length]
        for name, cut in waves(inside, rate, length) if self.paper else ():
            start, stop = (first.left + at * self.point for at in (cut.start + 1, cut.stop - 1))
            ax.plot([start, start, stop, stop], [20, 17, 17, 20], color=QUIET, linewidth=0.9, gid=f"wave-{name}")
            ax.text((start + stop) / 2, 13, name, ha="center", **words)


def _draw_grid(ax: Axes, across: Any, down: Any, size: tuple[float, float], colour: str, width: float) -> None:
    """Lines over the whole sheet, as one path."""
    ends = [end for x in across for end in ((x, 0.0), (x, size[1]))] + [
        end for y in down for end in ((0.0, y), (size[0], y))
    ]
    grid = Path(ends, [Path.MOVETO, Path.LINETO] * (len(ends) // 2))
    ax.add_patch(PathPatch(grid, fill=False, edgecolor=colour, linewidth=width))


def lay_out(layers: Layers) -> Sheet:
    """All leads in full length, or those that matter most; in columns if that makes them larger."""
    weight = np.abs(layers.change if layers.heat is None else layers.heat).sum(1)
    leads = sorted(np.argsort(-weight, kind="stable")[:MOST_LEADS].tolist())
    both = np.stack([layers.x, layers.x + layers.change])[:, leads]
    low, high = both.min((0, 2)), both.max((0, 2))
    span, points = 1.15 * float((high - low).max()) or 1.0, layers.x.shape[1]
    boxes = math.ceil(span / BOX[1]) * BOX[1]
    columns, second = fit(len(leads), points / (layers.rate or 1.0), boxes)
    if paper := layers.paper and SHAPE * second * boxes >= LEAST:
        span, point, unit = boxes, second / (layers.rate or 1.0), SHAPE * second
    else:
        columns, point = 1, WIDE / points
        unit = min(180.0, max(70.0, HIGH / len(leads))) / span
    rows, tall, above = -(-len(leads) // columns), unit * span, ABOVE if paper and layers.r_peaks else 0.0
    middles = (low + high) / 2
    cells = [
        Cell(
            lead,
            0,
            points,
            (i // rows) * (points * point + GAP),
            above + (i % rows) * (tall + HEAD) + HEAD,
            float(middles[i]),
        )
        for i, lead in enumerate(leads)
    ]
    size = (columns * (points * point + GAP) - GAP, above + rows * (tall + HEAD) + FOOT)
    return Sheet(layers, cells, size, tall, point, unit, paper)


def fit(leads: int, duration: float, span: float) -> tuple[int, float]:
    """Columns, and the width of a second, that make leads on ECG paper largest while boxes stay square."""
    choices = []
    for columns in range(1, leads + 1):
        height = max(HIGH / -(-leads // columns) - HEAD, 10.0)
        choices.append((min((WIDE - GAP * (columns - 1)) / columns / duration, height / (SHAPE * span)), columns))
    second, columns = max(choices)
    return columns, second


def clinical_sheet(layers: Layers) -> Sheet:
    """Twelve leads of a record in mV: three rows of four leads and a rhythm strip, at 25 mm/s and 10 mm/mV."""
    rate = layers.rate or 1.0
    shown = min(layers.x.shape[1], round(LONGEST * rate))
    middles = np.median(layers.x[:, :shown], axis=1)
    high = float(np.clip(math.ceil(np.ptp(layers.x[:, :shown], axis=1).max() * 2) / 2, LOWEST, HIGHEST))
    point, unit, names, quarter = 25 * MM / rate, 10 * MM, [name.casefold() for name in layers.leads], shown / 4
    places = [
        (names.index(name.casefold()), i % ROWS, round(i // ROWS * quarter), round((i // ROWS + 1) * quarter))
        for i, name in enumerate(CLINICAL)
    ]
    cells = [
        Cell(lead, start, stop, PULSE * rate * point + start * point, row * high * unit, float(middles[lead]))
        for lead, row, start, stop in [*places, (names.index(RHYTHM), ROWS, 0, shown)]
    ]
    size = ((PULSE * rate + shown) * point, (ROWS + 1) * high * unit)
    return Sheet(layers, cells, size, high * unit, point, unit, paper=True, clinical=True)
