"""The anytime curves of results as charts of a page."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlab.core.trace import DISTANCE_NAMES
from rlab.present.chart import Chart, Curve
from rlab.results.data import ResultData
from rlab.results.plots.anytime import AnytimeCurve


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
    curves = {
        name: AnytimeCurve.of(r.improvements, r.attacked, r.succeeded, r.setting.budget) for name, r in results.items()
    }
    setting = next(iter(results.values())).setting
    unit = "" if setting.distance == "l0" else setting.l2_unit
    return anytime_charts(curves, DISTANCE_NAMES[setting.distance] + unit)
