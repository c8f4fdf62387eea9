"""The anytime curve: the share of flipped samples and the distance of their best flips, by queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter
from torch import Tensor

from rlab.core.trace import DISTANCE_NAMES, Improvements
from rlab.present.chart import Chart, Curve
from rlab.present.style import say, tidy
from rlab.results.data import ResultData
from rlab.stats import Floats

Look = Mapping[str, Any]  # colour and line style
_ABOVE = 1e12  # drawn instead of infinity


@dataclass(frozen=True)
class AnytimeCurve:
    """Distances (n, m) of the best flips within queries (m,) of n attacked samples; infinite without a flip."""

    queries: Floats
    best: Floats

    @classmethod
    def of(cls, improvements: Sequence[Improvements], attacked: Tensor, succeeded: Tensor, budget: int) -> AnytimeCurve:
        """The curve at every number of queries where it changes; unverified flips do not count."""
        rows = zip(improvements, attacked.tolist(), succeeded.tolist(), strict=True)
        improvements = [flips if won else () for flips, counts, won in rows if counts]
        queries = np.array(sorted({1, budget, *(at for flips in improvements for at, _ in flips)}), dtype=np.float64)
        best = np.full((len(improvements), len(queries)), math.inf)
        for row, flips in zip(best, improvements, strict=True):
            for at, distance in flips:
                row[np.searchsorted(queries, at) :] = distance
        return cls(queries, best)

    @property
    def share(self) -> Floats:
        """(m,): the share of flipped samples."""
        shares: Floats = np.isfinite(self.best).mean(0)
        return shares

    def quantile(self, part: float) -> Floats:
        """(m,): a quantile of the distances; infinite if too few samples flipped."""
        distances: Floats = (
            np.median(self.best, 0) if part == 0.5 else np.quantile(self.best, part, 0, method="nearest")
        )
        return distances


def curve_of(result: ResultData) -> AnytimeCurve:
    return AnytimeCurve.of(result.improvements, result.attacked, result.succeeded, result.setting.budget)


def anytime_charts(curves: Mapping[str, AnytimeCurve], name: str) -> list[Chart]:
    """The share flipped and the median distance by queries; a single curve gets its quartiles."""
    alone = len(curves) == 1
    known = {key: curve for key, curve in curves.items() if curve.best.size and curve.share[-1] > 0}
    if not known:
        return []
    shares = [Curve(key, curve.queries, curve.share) for key, curve in known.items()]
    medians = [
        Curve(key, curve.queries, curve.quantile(0.5), (curve.quantile(0.25), curve.quantile(0.75)) if alone else None)
        for key, curve in known.items()
    ]
    queries = "queries, including the clean one"
    near = f"{name}, median of all attacked" + (" and quartiles" if alone else "")
    charts = [Chart("Flipped by queries", shares, queries, "of attacked samples", True, False, True, True)]
    if any(np.isfinite(curve.y).any() for curve in medians):
        charts.append(Chart("Distance of the nearest flip by queries", medians, queries, near, True, True, False, True))
    return charts


def attack_charts(results: Mapping[str, ResultData]) -> list[Chart]:
    """The anytime curves of several runs."""
    setting = next(iter(results.values())).setting
    unit = "" if setting.distance == "l0" else setting.l2_unit
    curves = {name: curve_of(result) for name, result in results.items()}
    return anytime_charts(curves, DISTANCE_NAMES[setting.distance] + unit)


def draw_anytime(
    left: Axes, right: Axes, curves: Sequence[tuple[AnytimeCurve, Look]], name: str, quartiles: bool = False
) -> None:
    """Draw the share flipped on the left, the median distance on the right; infinite medians are off the axis."""
    left.set_title("flipped by queries")
    right.set_title("distance of the nearest flip by queries")
    for ax in (left, right):
        tidy(ax)
    flipped = [(curve, look) for curve, look in curves if curve.best.size and curve.share[-1] > 0]
    if not flipped:
        say(left, "no sample was flipped")
        return say(right, "no sample was flipped")
    reached = []
    for curve, look in flipped:
        left.step(curve.queries, curve.share, where="post", linewidth=1.8, **look)
        median, *around = (curve.quantile(part) for part in ((0.5, 0.25, 0.75) if quartiles else (0.5,)))
        right.step(
            curve.queries, median.clip(max=_ABOVE), where="post", linewidth=1.8, label="median of all attacked", **look
        )
        if quartiles:
            low, high = (edge.clip(max=_ABOVE) for edge in around)
            right.fill_between(
                curve.queries, low, high, step="post", color=look["color"], alpha=0.15, linewidth=0, label="quartiles"
            )
        reached.append(np.concatenate([median, *around]))
    end = max(2.0, *(curve.queries[-1] for curve, _ in flipped))
    for ax in (left, right):
        ax.set(xscale="log", xlim=(1, end), xlabel="queries, including the clean one")
        ax.grid(axis="both", color="#EEEEEE", linewidth=0.6)
        ax.set_axisbelow(True)
    left.set(ylim=(0, 1.03), ylabel="of attacked samples")
    left.yaxis.set_major_formatter(PercentFormatter(1.0))
    _scale_distances(right, np.concatenate(reached), name)
    for axis in (left.xaxis, right.xaxis, right.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _scale_distances(ax: Axes, reached: Floats, name: str) -> None:
    """A logarithmic axis around the values, over at least a factor of four; a note if there are none."""
    finite = reached[np.isfinite(reached) & (reached > 0)]
    if not len(finite):
        return say(ax, "fewer than half of the samples were flipped")
    low, high = finite.min() / 1.15, finite.max() * 1.15
    wider = max(1.0, math.sqrt(4 * low / high))
    ax.set(yscale="log", ylim=(low / wider, high * wider), ylabel=name)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if high / low < 8 else (1, 2, 5)))
