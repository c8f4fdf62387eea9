"""Charts, bars and maps of a run as blocks of a page, which `rlab.present.figures` can also draw.

The anytime curve is the share of flipped samples and the distance of their best flips, by queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rlab.core.trace import DISTANCE_NAMES, Improvements
from rlab.data.kinds import kind_of
from rlab.present.chart import Chart, Curve
from rlab.present.inline import image_address, to_image
from rlab.present.layers import Layers, Ramp, legend_colours
from rlab.present.page import Bar, Bars, Picture
from rlab.present.style import hue
from rlab.present.table import number
from rlab.results.change import flip_shares
from rlab.results.data import ResultData
from rlab.stats import Floats

MOST_BARS = 14
MOST = 64  # inputs in the mean below the map of places
SIDE = 384  # pixels


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
    known = {key: curve for key, curve in curves.items() if curve.best.size}
    if not any(curve.share[-1] > 0 for curve in known.values()):
        return []
    shares = [Curve(key, curve.queries, curve.share) for key, curve in known.items()]
    medians = [
        Curve(key, curve.queries, curve.quantile(0.5), (curve.quantile(0.25), curve.quantile(0.75)) if alone else None)
        for key, curve in known.items()
    ]
    queries = "queries, including the clean one"
    near = f"{name}, median of all attacked" + (" and quartiles" if alone else "")
    drawn = {"log_x": True, "steps": True, "holds": False}  # a curve ends at its budget
    charts = [Chart("Flipped by queries", shares, queries, "of attacked samples", percent=True, **drawn)]
    if any(np.isfinite(curve.y).any() for curve in medians):
        charts.append(Chart("Distance of the nearest flip by queries", medians, queries, near, log_y=True, **drawn))
    return charts


def attack_charts(results: Mapping[str, ResultData]) -> list[Chart]:
    """The anytime curves of several runs."""
    setting = next(iter(results.values())).setting
    unit = "" if setting.distance == "l0" else setting.l2_unit
    curves = {name: curve_of(result) for name, result in results.items()}
    return anytime_charts(curves, DISTANCE_NAMES[setting.distance] + unit)


def _share(result: ResultData) -> Floats | None:
    """The share of flipped samples that distort each place, in the shape of the grid's cells; None without flips."""
    assignment = result.assignment[result.succeeded]
    if not (assignment != 0).any():
        return None
    share: Floats = result.setting.grid.places(assignment != 0).double().mean(0).numpy()
    return share


def time_charts(result: ResultData) -> list[Chart]:
    """The share of distortion over time; empty for images."""
    share, setting, kind = _share(result), result.setting, kind_of(result.setting.size)
    if share is None or kind == "image":
        return []
    along = share.reshape(len(share), -1).sum(1)
    signal = kind == "signal"
    axis = "time, s" if setting.rate else "point" if signal else "frame"
    times = np.arange(len(along) + 1) * setting.patch[0] / (setting.rate or 1.0) + (axis == "frame")  # counted from 1
    curve = Curve("", times, np.append(along, along[-1]))
    unit = "of flipped samples" if signal else "patches of a flipped sample"
    return [Chart("Distortion over time", [curve], axis, unit, percent=signal, steps=True)]


def place_panels(result: ResultData) -> list[Picture | Bars]:
    """The map of distorted places in images and frames, and how much of the change each filter and group of channels made."""
    share, setting = _share(result), result.setting
    if share is None:
        return []
    means = flip_shares(result)[1].mean(0).tolist()
    filters = [(name, mean, hue(k)) for k, (name, mean) in enumerate(zip(setting.palette, means, strict=True), 1)]
    groups = (result.assignment[result.succeeded] != 0).sum(0).view(len(setting.groups) or 1, -1).sum(1)
    parts = (groups / groups.sum()).tolist()
    channels = [(name, part, hue(1)) for name, part in zip(setting.groups, parts, strict=False)]
    where = [] if kind_of(setting.size) == "signal" else [_where(result, share)]
    by_filter = _shares("Filters: share of the squared change", filters)
    return [*where, *by_filter, *_shares("Channels: share of the distorted patches", channels)]


def _shares(title: str, shares: Sequence[tuple[str, float, str]]) -> list[Bars]:
    """Bars of name, share and colour, the largest first, without those that round to nothing."""
    shown = sorted((each for each in shares if each[1] >= 0.005), key=lambda each: -each[1])[:MOST_BARS]
    bars = [Bar(name, share / shown[0][1], f"{share:.0%}", colour) for name, share, colour in shown]
    return [Bars(title, bars)] if bars else []


def _where(result: ResultData, share: Floats) -> Picture:
    """How often each place is distorted, over the mean of the inputs; `share` has the shape of the grid's cells."""
    setting = result.setting
    flat = share.reshape(-1, *share.shape[-2:]).sum(0)
    most = float(flat.max())
    image = kind_of(setting.size) == "image"
    often = f"{most:.0%} of flipped samples" if image else f"{number(most)} patches of a flipped sample"
    high, wide = setting.size[-2:]
    spread = (flat / most).repeat(setting.patch[-2], 0).repeat(setting.patch[-1], 1)[:high, :wide]
    rows = [i for i in result.succeeded.nonzero().flatten().tolist() if result.inputs.has(i)][:MOST]
    under = f"Over the mean of {len(rows):,} flipped input{'s' if len(rows) > 1 else ''}." if rows else ""
    x = result.inputs.read(rows)[0].float().mean(0).cpu().numpy() if rows else np.zeros((1, high, wide), np.float32)
    layers = Layers(x.mean(1) if x.ndim > 3 else x, setting.bounds, heat=np.sqrt(spread).astype(np.float32))
    ramp = Ramp(legend_colours(np.sqrt(np.linspace(0, 1, 7))), "never", often)  # seldom distorted places show, too
    picture = image_address(to_image(layers.seen("map"), SIDE))
    about = f"how often each place is distorted, at most {often}"
    return Picture(picture, about, "Where", under, ramp=ramp)
