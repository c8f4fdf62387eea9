"""What trackers, audits and comparisons of runs read from an attack: its figures, its anytime curve, and where two runs differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlab.core.trace import DISTANCE_NAMES
from rlab.present.page import Block, Charts, Section, Text
from rlab.present.report import Metric
from rlab.present.table import Cells, Table
from rlab.results.charts import attack_charts, curve_of
from rlab.results.data import WITHIN, ResultData
from rlab.results.page import key_numbers
from rlab.results.tables import status_cell


def attack_metrics(result: ResultData) -> dict[str, Metric]:
    key: dict[str, Any] = {number.name: number.value for number in key_numbers(result)}
    s = result.summary()
    name, spent = DISTANCE_NAMES[result.setting.distance], result.setting.budget
    within = {f"{name} within {q} queries": s[f"median_within_{q}"] for q in WITHIN if q < spent}
    return {**(key | within | key), "samples": s["samples"], "attacked": s["attacked"], "total queries": s["queries"]}


def anytime_series(result: ResultData) -> list[tuple[int, Mapping[str, float]]]:
    """The anytime curve at each number of queries where it changes."""
    curve = curve_of(result)
    if not curve.best.size:
        return []
    points = zip(curve.queries.tolist(), curve.share.tolist(), curve.quantile(0.5).tolist(), strict=True)
    return [
        (int(q), {"flipped within": share} | ({"distance within": near} if math.isfinite(near) else {}))
        for q, share, near in points
    ]


def compared_sections(results: Mapping[str, ResultData]) -> list[Section]:
    """The curves of several runs, and shared samples whose status or distance differs."""
    charts = attack_charts(results)
    sections = [Section("Distance by queries", [Charts(charts)])] if charts else []
    return [*sections, Section("Samples", _sample_blocks(results))]


def _sample_blocks(results: Mapping[str, ResultData]) -> list[Block]:
    """The largest difference first."""
    places = {name: {sample: i for i, sample in enumerate(result.ids)} for name, result in results.items()}
    shared = [sample for sample in next(iter(places.values())) if all(sample in ids for ids in places.values())]
    if not shared:
        return [Text("The runs share no sample.")]
    rows: list[tuple[float, Cells]] = []
    for sample in shared:
        ends = [(result, places[name][sample]) for name, result in results.items()]
        l2 = [float(result.final["l2"][i]) for result, i in ends]
        endings = {result.status[i] for result, i in ends}
        spread = math.inf if len(endings) > 1 else max(l2) / min(l2) if min(l2) > 0 else 1.0
        if spread > 1:
            rows.append((spread, [sample, *(status_cell(result.status[i]) for result, i in ends), *l2]))
    rows.sort(key=lambda row: -row[0])
    head = ["id", *(f"{name}: status" for name in results), *(f"{name}: L2" for name in results)]
    how_many = f"{len(rows)} of {len(shared)} shared samples have a different status or distance."
    return [Text(how_many), Table(head, [cells for _, cells in rows], words=1 + len(results))]
