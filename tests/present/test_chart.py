"""Curves with axes: what is drawn, where it ends, round marks, and SVG for pages."""

from __future__ import annotations

import math
import re
from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes

from rlab.present.chart import Chart, Curve
from rlab.present.environment import make_environment
from rlab.present.style import PAGE, new_figure
from rlab.redact import HIDDEN
from rlab.results.charts import AnytimeCurve, anytime_charts, attack_charts
from tests.results.plots.fixtures import Recipe, make_result


def drawn(chart: Chart) -> Axes:
    figure = new_figure(4, 3)
    ax = figure.add_subplot()
    chart.draw(ax)
    figure.draw_without_rendering()
    return ax


def marks(ax: Axes, which: str = "y") -> list[str]:
    axis = ax.yaxis if which == "y" else ax.xaxis
    low, high = axis.get_view_interval()
    return [
        text.get_text()
        for text, at in zip(axis.get_ticklabels(), axis.get_ticklocs(), strict=True)
        if low <= at <= high
    ]


def test_a_share_has_an_axis_up_to_all() -> None:
    ax = drawn(Chart("a", [Curve("one", [0, 5, 10], [0.0, 0.5, 1.0])], percent=True))
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [(0, 0), (5, 0.5), (10, 1)])
    assert marks(ax) == ["0%", "20%", "40%", "60%", "80%", "100%"]


def test_an_anytime_curve_ends_at_its_budget() -> None:
    def curve(budget: int) -> AnytimeCurve:
        return AnytimeCurve(np.array([1.0, budget]), np.array([[3.0, 2.0]]))

    for chart in anytime_charts({"few": curve(10), "many": curve(100)}, "L2"):
        assert [float(np.max(line.get_xdata())) for line in drawn(chart).lines] == [10, 100]
    held = Chart("a", [Curve("", [1, 10], [1.0, 0.5]), Curve("", [1, 100], [1.0, 0.5])], steps=True)
    assert [float(np.max(line.get_xdata())) for line in drawn(held).lines] == [100, 100]


def test_what_is_not_finite_is_left_out() -> None:
    curves = [Curve("", [1, 2, 3], [math.inf, 2.0, 1.0]), Curve("none", [1, 2], [math.inf, math.nan])]
    chart = Chart("a", curves, log_y=True)
    assert chart.named == [(0, "")]
    low, high = drawn(chart).get_ylim()
    assert 0.5 < low < 1
    assert 2 < high < 3


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("y", [2.0, 0.0])
def test_flat_and_empty_curves_have_axes(y: float, log: bool) -> None:
    ax = drawn(Chart("a", [Curve("", [1, 1], [y, y])], log_x=log, log_y=log and y > 0))
    assert marks(ax)
    assert marks(ax, "x")
    assert Chart("a", []).named == []
    assert marks(drawn(Chart("a", [])))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("ends", [(2.6, 3.9), (0.001, 0.003), (0.7, 42.0), (1.0, 12_345.0)])
def test_marks_are_round_and_few(ends: tuple[float, float], log: bool) -> None:
    labels = [float(label.replace(",", "")) for label in marks(drawn(Chart("a", [Curve("", [0, 1], ends)], log_y=log)))]
    assert 2 <= len(labels) <= 10
    assert labels == sorted(labels)
    assert all(float(f"{label:.3g}") == label for label in labels)


def test_the_anytime_charts_of_a_run() -> None:
    result = make_result(Recipe((16, 16), (4, 4), n=8))
    share, near = attack_charts({"": result})
    assert float(share.curves[0].y[-1]) == int(result.succeeded.sum()) / int(result.attacked.sum())
    assert near.curves[0].band is not None
    assert len(drawn(near).patches) == 1
    assert "opacity: 0.16" in near.svg()
    assert "<use" not in near.svg()
    nothing = AnytimeCurve(np.array([1.0, 9.0]), np.full((3, 2), np.inf))
    assert anytime_charts({"a": nothing}, "L2") == []
    curve = AnytimeCurve(np.array([1.0, 9.0]), np.array([[np.inf, 1.0], [2.0, 1.0], [2.0, 0.5]]))
    compared = anytime_charts({"a": nothing, "b": curve}, "L2")  # a curve without flips keeps its name
    assert [[one.name for one in chart.curves] for chart in compared] == [["a", "b"]] * 2
    assert [chart.curves[0].band for chart in anytime_charts({"a": curve, "b": curve}, "L2")] == [None, None]


def test_a_chart_on_a_page_has_its_colours_and_escapes_words() -> None:
    words = "<b>$x$ & https://user:word@host/?key=1"
    svg = Chart(words, [Curve("", [0, 1], [0, 1]), Curve("", [0, 1], [1, 0])], words, words).svg()
    assert re.findall(r"#[0-9a-f]{6}", svg) == []
    assert {"var(--c0)", "var(--c1)", "var(--line)"} <= set(re.findall(r"var\(--\w+\)", svg))
    assert HIDDEN in svg or "user:word" not in svg
    assert "<b>" not in svg
    assert not re.search(r"\d\.\d{2,}", "".join(re.findall(r' d="([^"]*)"', svg)))


def test_the_colours_of_curves_differ_and_are_those_of_pages() -> None:
    style = make_environment().get_template("style.css").render()
    hues = re.findall(r"--c\d: #(\w\w)(\w\w)(\w\w);", style)
    assert len(hues) == 12  # six on a light page, then six on a dark one
    rgb = [[int(part, 16) for part in hue] for hue in hues]
    for first, second in [*combinations(rgb[:6], 2), *combinations(rgb[6:], 2)]:
        assert math.dist(first, second) > 60
    for colour, name in PAGE.items():
        assert f"--{name}: {colour};" in style
