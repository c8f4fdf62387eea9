"""The figure with the anytime curves of several attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rlab.present.style import HUES, INK, STYLE, WIDE, flow, headed_figure, list_below, plain
from rlab.results.plots.anytime import AnytimeCurve, draw_anytime

_DASHES = ("-", "--", ":", "-.")
_COLOURS = (INK, *HUES[:5])  # yellow lines are too pale on white


def draw_curves(named: Mapping[str, AnytimeCurve], facts: Sequence[str], distance: str) -> Figure:
    """Draw the share of flipped samples on the left and the median distance on the right, below a header of facts."""
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(WIDE, ["attacks compared", *flow(facts, WIDE - 0.25)], [4.4], 0.9)
        panels = body.subgridspec(1, 2, wspace=0.04)
        curves, handles = [], []
        for i, (name, curve) in enumerate(named.items()):
            dash = _DASHES[i // len(_COLOURS) % len(_DASHES)]
            look: dict[str, Any] = {"color": _COLOURS[i % len(_COLOURS)], "linestyle": dash}
            curves.append((curve, look))
            handles.append(Line2D([], [], linewidth=1.8, label=plain(name, 40), **look))
        median = f"median {distance} over all attacked samples"
        draw_anytime(figure.add_subplot(panels[0]), figure.add_subplot(panels[1]), curves, median)
        list_below(figure, handles)
        return figure
