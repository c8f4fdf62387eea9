"""Curves as SVG, which follow the page's light or dark colours and stay sharp at any size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.ticker import MaxNLocator

from rlab.stats import Floats

WIDTH, HEIGHT = 380, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 8, 38
_TICKS = 6  # maximum per axis


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; points that are not finite are skipped. `band` holds the edges of a shaded area."""

    name: str
    x: Sequence[float] | Floats
    y: Sequence[float] | Floats
    band: tuple[Floats, Floats] | None = None


@dataclass(frozen=True)
class Chart:
    """Curves with common axes; with `steps`, each value holds until the next."""

    title: str
    curves: Sequence[Curve]
    x: str = ""
    y: str = ""
    log_x: bool = False
    log_y: bool = False
    percent: bool = False
    steps: bool = False
    holds: bool = True  # with `steps`, whether the last value of a curve holds up to the right edge

    @property
    def drawn(self) -> list[tuple[int, str, str, str]]:
        """(number, name, line, shade) of every curve that has a point."""
        found = []
        for number, curve in enumerate(self.curves):
            line = self._line(curve.x, curve.y)
            if line:
                found.append((number, curve.name, line, self._shade(curve) if curve.band else ""))
        return found

    @property
    def x_marks(self) -> list[tuple[float, str]]:
        """Round values on the axis, as text too."""
        return [(value, f"{value:,g}") for value in _ticks(*self.x_range, self.log_x)]

    @property
    def y_marks(self) -> list[tuple[float, str]]:
        shown = "{:.0%}" if self.percent else "{:,g}"
        return [(value, shown.format(value)) for value in _ticks(*self.y_range, self.log_y)]

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        return [(self._x(value), label) for value, label in self.x_marks]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        return [(self._y(value), label) for value, label in self.y_marks]

    @cached_property
    def x_range(self) -> tuple[float, float]:
        return _range([value for curve in self.curves for value in curve.x], self.log_x)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        if self.percent:
            return 0.0, 1.0
        low, high = _range([value for curve in self.curves for value in curve.y], self.log_y)
        return (low / 1.15, high * 1.15) if self.log_y else (min(low, 0.0), high + 0.05 * (high - low))

    def _x(self, value: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * _place(value, *self.x_range, self.log_x), 1)

    def _y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _place(value, *self.y_range, self.log_y), 1)

    def _points(self, x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> list[tuple[float, float]]:
        each = ((float(a), float(b)) for a, b in zip(x, y, strict=True))
        return [(self._x(a), self._y(b)) for a, b in each if math.isfinite(b) and (b > 0 or not self.log_y)]

    def _line(self, x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> str:
        (points := self._points(x, y)).sort(key=lambda point: point[0])
        if not points:
            return ""
        move = "".join(f"H{a:g}V{b:g}" if self.steps else f"L{a:g} {b:g}" for a, b in points[1:])
        return f"M{points[0][0]:g} {points[0][1]:g}{move}" + (f"H{WIDTH - RIGHT}" if self.steps and self.holds else "")

    def _shade(self, curve: Curve) -> str:
        """The area between both edges where the lower one is finite; an infinite upper edge is the top of the chart."""
        assert curve.band is not None
        low, high = curve.band
        known = np.isfinite(low)
        if not known.any():
            return ""
        top = self.y_range[1]
        x = np.asarray(curve.x)[known]
        upper = self._line(x, np.where(np.isfinite(high[known]), high[known], top).clip(max=top))
        lower = self._points(x, low[known])
        back, end = "", WIDTH - RIGHT if self.steps and self.holds else lower[-1][0]
        for a, b in reversed(lower):
            back += f"V{b:g}H{a:g}" if self.steps else f"L{a:g} {b:g}"
        return f"{upper}H{end:g}{back}Z"


def _range(values: Sequence[float], log: bool) -> tuple[float, float]:
    """Minimum and maximum of the values that can be drawn, widened if they are equal."""
    finite = [float(value) for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 2.0)
    if high > low:
        return low, high
    return (low / 2, high * 2) if log else (low - 0.5, high + 0.5)


def _place(value: float, low: float, high: float, log: bool) -> float:
    """The position of a value between low and high, in [0, 1]."""
    if log:
        value, low, high = math.log(max(value, 1e-300)), math.log(low), math.log(high)
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _ticks(low: float, high: float, log: bool) -> list[float]:
    """Round values between low and high: 1, 2 and 5 times powers of ten."""
    if not log:
        found, slack = MaxNLocator(_TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high), 1e-9 * (high - low)
        return [round(float(value), 12) for value in found if low - slack <= value <= high + slack]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for parts in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        values = [part * 10.0**power for power in powers for part in parts]
        values = [value for value in values if low * 0.999 <= value <= high * 1.001]
        if len(values) <= _TICKS + 1:
            break
    return values[:: -(-len(values) // (_TICKS + 1)) or 1] if len(values) > 1 else _ticks(low, high, log=False)
