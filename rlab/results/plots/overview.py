"""A run in one picture: the charts and bars of its page."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlab.present.figures import draw_panels
from rlab.present.style import WIDE, flow, plain
from rlab.results.charts import attack_charts, class_bars, place_panels, time_charts
from rlab.results.data import ResultData
from rlab.results.sentences import run_sentence
from rlab.results.tables import figures_line


def draw_overview(result: ResultData) -> Figure:
    setting = result.setting
    named = f"{plain(setting.policy, 40)}  ·  {plain(setting.goal, 40)}  ·  budget {setting.budget}"
    facts = [plain(part, 200) for part in (*run_sentence(result).split("; "), figures_line(result))]
    lines = [named, *flow([*facts, f"{result.total_queries:,} queries in total"], WIDE - 0.25)]  # drawn text is wider
    charts = [*attack_charts({"": result}), *time_charts(result)]
    bars = [*place_panels(result), *class_bars(result)]
    return draw_panels(lines, [row for row in (charts, bars) if row])
