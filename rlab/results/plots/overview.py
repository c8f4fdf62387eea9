"""A run in one picture: the charts and bars of its page."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlab.present.figures import draw_panels
from rlab.present.style import WIDE, flow, plain
from rlab.results.charts import attack_charts, class_bars, place_panels, time_charts
from rlab.results.data import ResultData
from rlab.results.tables import figures_line


def draw_overview(result: ResultData) -> Figure:
    charts = [*attack_charts({"": result}), *time_charts(result)]
    bars = [*place_panels(result), *class_bars(result)]
    return draw_panels(_title(result), [row for row in (charts, bars) if row])


def _title(result: ResultData) -> list[str]:
    setting, s = result.setting, result.summary()
    named = f"{plain(setting.policy, 40)}  ·  {plain(setting.goal, 40)}  ·  budget {setting.budget}"
    facts = [f"{int(s['succeeded'])} of {int(s['attacked'])} attacked samples flipped"]
    if s["attacked"]:
        facts[0] += f" ({s['success']:.1%})"
    if s["succeeded"]:
        facts.append(f"median {s['median_queries']:g} queries (first flip at {s['median_queries_flip']:g})")
        unit, flip, end = " " * bool(setting.l2_unit) + plain(setting.l2_unit, 12), s["median_l2_flip"], s["median_l2"]
        facts.append(f"median L2 {flip:.3g}{unit} at the first flip, {end:.3g}{unit} in the end")
        facts.append(f"median {s['median_patches']:g} of {len(setting.grid)} patches")
    facts += [f"{int(s['queries'])} queries in total", f"inputs {' × '.join(map(str, setting.size))}"]
    return [named, *flow([*facts, figures_line(result)], WIDE - 0.25)]  # drawn text is slightly wider than measured
