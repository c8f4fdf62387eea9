"""The figures of an attack, computed once: for tables, the page, JSON, trackers, lists of runs, audits and comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlab.core.trace import DISTANCE_NAMES
from rlab.present.page import Block, Charts, Number, Section, Text
from rlab.present.report import Metric
from rlab.present.table import Cells, Share, Table, number
from rlab.results.charts import attack_charts, curve_of
from rlab.results.data import WITHIN, ResultData
from rlab.results.tones import status_cell
from rlab.stats import Estimate, median_estimate, median_of, share_estimate
from rlab.victims.account import PHASES

EARLY = 20  # queries, or the budget if it is smaller, of the tile about early flips


@dataclass(frozen=True)
class Figure:
    """A figure of a run: the median of some samples' values (m,)."""

    name: str
    values: Tensor
    unit: str = ""

    @property
    def median(self) -> float:
        return median_of(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.double().mean())

    @property
    def estimate(self) -> Estimate:
        """The median, with an interval if there are enough values."""
        if not len(self.values):
            return Estimate(math.nan)
        estimate = median_estimate(self.values)
        return Estimate(estimate.value) if math.isinf(estimate.low) else estimate

    @property
    def text(self) -> str:
        return number(self.median) + (self.unit if math.isfinite(self.median) else "")


def figures_of(result: ResultData, distance: str = "") -> dict[str, Figure]:
    """Each figure by its key in `summary`: over flipped samples, but `within_N` over all attacked ones, infinite without a flip.

    `distance` replaces the name of the minimised distance."""
    setting, won, attacked = result.setting, result.succeeded, result.attacked
    name, unit = distance or DISTANCE_NAMES[setting.distance], "" if setting.distance == "l0" else setting.l2_unit
    first = torch.tensor([flips[0][0] if flips else math.nan for flips in result.improvements])
    near, end = result.distances()
    within = {
        f"within_{q}": Figure(f"{name} within {q} queries", result.best_within(q)[attacked], unit)
        for q in sorted({*WITHIN, min(EARLY, setting.budget)})
    }
    flipped = {
        "flip": (f"{name} at first flip", near, unit),
        "end": (f"{name} in the end", end, unit),
        "queries_flip": ("queries to flip", first, ""),
        "queries": ("queries", result.effort, ""),
        "search": ("queries of the search", result.queries[:, PHASES.index("search")], ""),
        "patches": (f"patches of {len(setting.grid)}", result.final["l0_patches"], ""),
        "l2_flip": ("L2 at first flip", result.flip["l2"], setting.l2_unit),
        "l2": ("L2", result.final["l2"], setting.l2_unit),
        "snr": ("SNR in dB", result.final["snr_db"], ""),
    }
    return within | {key: Figure(name, values[won], unit) for key, (name, values, unit) in flipped.items()}


def attack_summary(result: ResultData) -> dict[str, float]:
    """The plain figures that `--json` prints."""
    figures, won, attacked = figures_of(result), int(result.succeeded.sum()), int(result.attacked.sum())
    keys = ("queries", "search", "queries_flip", "l2_flip", "l2", "patches", *(f"within_{q}" for q in WITHIN))
    return {
        "samples": len(result),
        "attacked": attacked,
        "succeeded": won,
        "success": won / attacked if attacked else math.nan,
        **{f"median_{key}": figures[key].median for key in keys},
        **{f"mean_{key}": figures[key].mean for key in ("queries", "l2")},
        "queries": result.total_queries,
        "queries_learn": result.learning_queries,
    }


def key_numbers(result: ResultData) -> list[Number]:
    """The five key figures, with 95% intervals."""
    figures = figures_of(result)
    shown = [figures[key] for key in (f"within_{min(EARLY, result.setting.budget)}", "end", "queries_flip", "patches")]
    success = Share(share_estimate(int(result.succeeded.sum()), int(result.attacked.sum())), 0)
    return [Number("flipped, verified", success), *(Number(each.name, each.estimate, each.unit) for each in shown)]


def attack_metrics(result: ResultData) -> dict[str, Metric]:
    """The key figures, the medians within numbers of queries, and counts."""
    key: dict[str, Any] = {number.name: number.value for number in key_numbers(result)}
    figures = figures_of(result)
    within = [figures[f"within_{q}"] for q in WITHIN if q < result.setting.budget]
    counts = {"samples": len(result), "attacked": int(result.attacked.sum()), "total queries": result.total_queries}
    return key | {each.name: each.median for each in within if each.name not in key} | counts


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
