"""The stage of a signal: all its leads, on ECG paper (25 mm/s, 10 mm/mV) if unit and rate allow it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlab.present.viewer import Lead, Mark, Sheet, Stage, line
from rlab.present.waves import waves
from rlab.results.plots.pixels import magnification
from rlab.results.plots.sample import Array, Sample
from rlab.results.plots.signal import BOX, SHAPE, lay_out
from rlab.results.viewers.pixels import entry_mark

Pair = tuple[float, float]  # across and down, in CSS pixels
WIDE, HIGH = 960.0, 560.0  # CSS pixels of a sheet
GAP, HEAD, TOP, FOOT = 12.0, 22.0, 14.0, 26.0  # between columns, above each lead, above and below all
POINTS, MOST = 4000, 2.5e6  # points per line and per page; longer lines keep minima and maxima


@dataclass(frozen=True)
class Traces:
    """A signal (c, time) before and after, with what is needed to draw it."""

    x0: Array
    x: Array
    rate: float | None
    unit: str
    leads: Sequence[str]
    r_peaks: Sequence[int] = ()

    @property
    def paper(self) -> bool:
        return bool(self.rate) and self.unit == "mV"


@dataclass(frozen=True)
class Places:
    """The upper left corners of the leads, and the size of each."""

    corners: Sequence[Pair]
    cell: Pair

    def stretch(self, start: float, stop: float, height: float = 0.0, lift: float = 0.0) -> str:
        """A path over a range of time in every lead, as high as the lead, or a bar of `height` above its lower edge."""
        (whole, high), tall = self.cell, height or self.cell[1]
        wide, right = (stop - start) * whole, start * whole
        return "".join(
            f"M{left + right:.5g} {top + high - lift - tall:.5g}h{wide:.4g}v{tall:.4g}h-{wide:.4g}z"
            for left, top in self.corners
        )


def signal_stage(sample: Sample, among: int) -> Stage:
    """x: (c, time)."""
    s = sample.setting
    stage, places = draw_traces(Traces(sample.x0, sample.x1, s.rate, s.unit, s.leads, sample.r_peaks), among)
    return replace(stage, marks=_shades(sample, places))


def draw_traces(traces: Traces, among: int) -> tuple[Stage, Places]:
    """The stage without marks, and the places for them."""
    rate, (leads, points), paper = traces.rate, traces.x0.shape, traces.paper
    both = np.stack([traces.x0, traces.x])
    low, high = both.min((0, 2)), both.max((0, 2))
    span = 1.15 * float((high - low).max()) or 1.0
    duration = points / (rate or 1.0)
    columns, cell, box, note = _grid(traces, leads, duration, span)
    if paper:
        span = cell[1] / box[1] * BOX[1]
    rows = -(-leads // columns)
    factor = magnification(2 * float(np.abs(traces.x - traces.x0).max()) / span)
    corners = [((i // rows) * (cell[0] + GAP), TOP + (i % rows) * (cell[1] + HEAD) + HEAD) for i in range(leads)]
    most = min(POINTS, max(200, int(MOST / (among * leads))))
    step = 1 if points <= most else -(-2 * points // most)  # the number of points that two points replace
    drawn = [_lead(traces, i, corner, cell, span, factor, step) for i, corner in enumerate(corners)]
    width, height = columns * (cell[0] + GAP) - GAP, TOP + rows * (cell[1] + HEAD) + FOOT
    cuts = waves(traces.r_peaks, rate, points) if paper else []
    named = [(name, cut.start / points * cell[0], (cut.stop - cut.start) / points * cell[0]) for name, cut in cuts]
    times = [(f"{duration * part:.3g}{' s' if rate else ''}", cell[0] * part) for part in (0, 0.5, 1)]
    sheet = Sheet(drawn, cell, box, note, paper, named, times)
    return Stage(width, height, (), factor, sheet=sheet), Places(corners, cell)


def _grid(traces: Traces, leads: int, duration: float, span: float) -> tuple[int, Pair, Pair, str]:
    """Columns, the size of a lead, the size of a large box, and a note about the boxes."""
    if not traces.paper:
        tall = min(180.0, max(70.0, HIGH / leads))
        note = f"Each lead is {span:.3g} {traces.unit}".rstrip() + " high."
        return 1, (WIDE, tall), (WIDE / 10, tall / 4), note
    span = math.ceil(span / BOX[1]) * BOX[1]
    columns, second = lay_out(leads, duration, span, (WIDE, HIGH), GAP, HIGH)
    note = f"Large boxes are {BOX[0]} s × {BOX[1]} mV, as on paper of 25 mm/s and 10 mm/mV."
    mm = SHAPE * second  # pixels per millivolt
    return columns, (second * duration, mm * span), (BOX[0] * second, BOX[1] * mm), note


def _lead(traces: Traces, lead: int, place: Pair, cell: Pair, span: float, factor: int, step: int) -> Lead:
    """A lead's lines, in points and thousandths of the cell's height."""
    x0, x, names = traces.x0[lead], traces.x[lead], traces.leads
    middle = (min(x0.min(), x.min()) + max(x0.max(), x.max())) / 2
    before, after, change = (
        _thinned(500 + 1000 / span * values, step) for values in (middle - x0, middle - x, factor * (x0 - x))
    )
    differs = np.convolve(x0 != x, [1, 1, 1], "same") > 0  # with the neighbours, to connect the line
    keep = differs if step == 1 else (_stretches(differs, step).max(1) > 0).repeat(2)
    return Lead(
        names[lead] if lead < len(names) else f"{'lead' if traces.unit == 'mV' else 'channel'} {lead + 1}",
        *place,
        (cell[0] / max(len(before) - 1, 1), cell[1] / 1000),
        line(before),
        line(after, keep),
        line(change, keep),
    )


def _stretches(values: Array | NDArray[np.bool_], step: int) -> Array:
    """(n,) -> (n // step, step), without the remainder."""
    return values[: len(values) // step * step].reshape(-1, step).astype(np.float32)


def _thinned(values: Array, step: int) -> Array:
    if step == 1:
        return values
    parts = _stretches(values, step)
    return np.stack([parts.min(1), parts.max(1)], 1).reshape(-1)


def _shades(sample: Sample, places: Places) -> list[Mark]:
    """Distorted ranges of time, over the leads that each patch holds; the entries that made most of the change come first."""
    points, paths, grid = sample.x0.shape[1], defaultdict[tuple[int, float], str](str), sample.setting.grid
    entries = list(sample.looks)
    for patch, entry in sample.touched:
        (box,) = grid.box(patch)
        own = [corner for lead, corner in enumerate(places.corners) if grid.holds(patch, lead)]
        shade = replace(places, corners=own).stretch(box.start / points, box.stop / points)
        paths[entries.index(entry), sample.strengths[patch]] += shade
    return [entry_mark(sample, entries[k], strength, path) for (k, strength), path in sorted(paths.items())]
