"""Curves with axes, drawn by matplotlib: for figures, and as SVG that follows the light or dark colours of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from rlab.present.inline import figure_svg
from rlab.present.style import CURVES, LINE, STYLE, new_figure, tidy
from rlab.stats import Floats

SIZE = (4.3, 2.7)  # inches on a page
_DASHES = ("-", "--", ":", "-.")


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
    def named(self) -> list[tuple[int, str]]:
        """(number, name) of every curve that has a point."""
        return [(number, curve.name) for number, curve in enumerate(self.curves) if np.isfinite(curve.y).any()]

    def draw(self, ax: Axes) -> None:
        every = np.concatenate([[], *(curve.x for curve in self.curves)])
        start, end = (float(every.min()), float(every.max())) if len(every) else (1.0, 2.0)
        ax.set(xscale="log" if self.log_x else "linear", yscale="log" if self.log_y else "linear")
        ax.margins(0, 0.06)
        for number, curve in enumerate(self.curves):
            style = "steps-post" if self.steps else None
            ax.plot(*self._held(end, curve.x, curve.y), drawstyle=style, **look(number))
        low, high = ax.get_ylim()
        low, high = ax.set_ylim(
            (0, 1.02) if self.percent else (0.0 if ax.dataLim.y0 >= 0 and not self.log_y else low, high)
        )
        for number, curve in enumerate(self.curves):
            if curve.band is not None:  # it may leave the axis, which shows the curves
                x, *edges = self._held(end, curve.x, *(np.clip(edge, low, high) for edge in curve.band))
                if self.steps:
                    x, edges = x.repeat(2)[1:], [edge.repeat(2)[:-1] for edge in edges]
                around = np.concatenate([x, x[::-1]]), np.concatenate([edges[0], edges[1][::-1]])
                ax.fill(*around, color=look(number)["color"], alpha=0.16, linewidth=0)
        if start < end:
            ax.set_xlim(start, end)
        _mark(ax)
        if self.percent:
            ax.yaxis.set_major_formatter(PercentFormatter(1, 0))
        tidy(ax, ())
        ax.tick_params(length=0)

    def svg(self) -> Markup:
        """The axes and curves for a page, which writes the title and the names of the curves itself."""
        with matplotlib.rc_context(STYLE):
            figure = new_figure(*SIZE)
            ax = figure.add_subplot()
            self.draw(ax)
            ax.set_xlabel(self.x)
            return figure_svg(figure, f"{self.title}: {self.y} over {self.x}")

    def _held(self, end: float, *values: Sequence[float] | Floats) -> list[Floats]:
        """x and its values as arrays, the last ones repeated at `end` if they hold."""
        arrays = [np.asarray(each, float) for each in values]
        if not (self.steps and self.holds and len(arrays[0])):
            return arrays
        return [np.append(arrays[0], end), *(np.append(each, each[-1]) for each in arrays[1:])]


def look(number: int) -> dict[str, Any]:
    """The colour and dashes of a curve."""
    dashes = _DASHES[number // len(CURVES) % len(_DASHES)]
    return {"color": CURVES[number % len(CURVES)], "linestyle": dashes, "linewidth": 1.7}


def _mark(ax: Axes) -> None:
    """A few round values on both axes."""
    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        within = high < 100 * low  # two powers of ten on a logarithmic axis
        log = axis.get_scale() == "log"
        axis.set_major_locator(
            LogLocator(subs=(1, 2, 5) if within else (1,)) if log else MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
        )
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.grid(color=LINE, linewidth=0.7)
    ax.set_axisbelow(True)
