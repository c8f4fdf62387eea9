"""Curves as SVG paths: ends, ticks, logarithms, and what cannot be drawn."""

from __future__ import annotations

import math
import re
from itertools import combinations

import numpy as np

from rlab.present.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Curve
from rlab.present.environment import make_environment
from rlab.results.charts import AnytimeCurve, anytime_charts, attack_charts
from tests.results.plots.fixtures import Recipe, make_result


def test_a_line_spans_the_axes() -> None:
    chart = Chart("a", [Curve("one", [0, 5, 10], [0.0, 0.5, 1.0])], percent=True)
    ((_, name, line, shade),) = chart.drawn
    assert (name, shade) == ("one", "")
    left, right, low = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM
    assert line == f"M{left} {low}L{(left + right) / 2:g} {(TOP + low) / 2:g}L{right} {TOP}"
    assert [label for _, label in chart.y_ticks] == ["0%", "20%", "40%", "60%", "80%", "100%"]


def test_steps_hold_each_value_until_the_next() -> None:
    curve = Curve("", [1, 10, 100], [1.0, 1.0, 0.5])
    ((_, _, line, _),) = Chart("a", [curve], log_x=True, percent=True, steps=True).drawn
    assert line.count("H") == 3
    assert line.endswith(f"H{WIDTH - RIGHT}")


def test_an_anytime_curve_ends_at_its_budget() -> None:
    def curve(budget: int) -> AnytimeCurve:
        return AnytimeCurve(np.array([1.0, budget]), np.array([[3.0, 2.0]]))

    for chart in anytime_charts({"few": curve(10), "many": curve(100)}, "L2"):
        (_, _, few, _), (_, _, many, _) = chart.drawn
        assert f"H{WIDTH - RIGHT}" not in few
        assert f"H{WIDTH - RIGHT}" in many


def test_what_is_not_finite_is_left_out() -> None:
    curves = [Curve("", [1, 2, 3], [math.inf, 2.0, 1.0]), Curve("none", [1, 2], [math.inf, math.nan])]
    chart = Chart("a", curves, log_y=True)
    assert [name for _, name, _, _ in chart.drawn] == [""]
    assert "inf" not in chart.drawn[0][2]
    assert all(math.isfinite(at) for at, _ in [*chart.x_ticks, *chart.y_ticks])


def test_flat_and_empty_curves_have_axes() -> None:
    for y in ([2.0, 2.0], [0.0, 0.0]):
        for log in (False, True):
            chart = Chart("a", [Curve("", [1, 1], y)], log_x=log, log_y=log)
            assert chart.x_ticks
            assert chart.y_ticks
    assert Chart("a", []).drawn == []


def test_ticks_are_round_and_few() -> None:
    for high in (0.003, 0.7, 42.0, 12_345.0):
        labels = [float(label.replace(",", "")) for _, label in Chart("a", [Curve("", [0, 1], [0.0, high])]).y_ticks]
        assert 2 <= len(labels) <= 7
        assert labels == sorted(labels)


def test_the_anytime_charts_of_a_run() -> None:
    result = make_result(Recipe((16, 16), (4, 4), n=8))
    share, near = attack_charts({"": result})
    assert float(share.curves[0].y[-1]) == int(result.succeeded.sum()) / int(result.attacked.sum())
    assert near.curves[0].band is not None
    assert near.drawn[0][3].endswith("Z")
    nothing = AnytimeCurve(np.array([1.0, 9.0]), np.full((3, 2), np.inf))
    assert anytime_charts({"a": nothing}, "L2") == []
    curve = AnytimeCurve(np.array([1.0, 9.0]), np.array([[np.inf, 1.0], [2.0, 1.0], [2.0, 0.5]]))
    compared = anytime_charts({"a": nothing, "b": curve}, "L2")  # a curve without flips keeps its name
    assert [[one.name for one in chart.curves] for chart in compared] == [["a", "b"]] * 2
    assert all(chart.drawn for chart in compared)
    assert [chart.curves[0].band for chart in anytime_charts({"a": curve, "b": curve}, "L2")] == [None, None]


def test_the_colours_of_curves_differ() -> None:
    style = make_environment().get_template("style.css").render()
    hues = re.findall(r"--c\d: #(\w\w)(\w\w)(\w\w);", style)
    assert len(hues) == 12  # six on a light page, then six on a dark one
    rgb = [[int(part, 16) for part in hue] for hue in hues]
    for first, second in [*combinations(rgb[:6], 2), *combinations(rgb[6:], 2)]:
        assert math.dist(first, second) > 60
