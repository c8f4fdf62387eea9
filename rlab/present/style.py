"""The style of all pictures: palette entries have Okabe and Ito's colour-blind-safe hues; blue is the original."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

DPI = 125
WIDE = 12.8  # inches, 1600 px
LETTERS = 10.5  # per inch of running text, at least
INK, QUIET, BEFORE = "#1f2328", "#59636e", "#0072b2"
LINE, COARSE, FINE, PAPER = "#d8dee4", "#e9b0a7", "#f7deda", "#fffaf9"  # grids, and ECG paper
CHANGE = "#b35900"
CURVES = (BEFORE, "#b35900", "#007a5a", "#a8518a", INK, "#767d86")
PAGE = {INK: "ink", QUIET: "quiet", LINE: "line", COARSE: "coarse", FINE: "fine", PAPER: "paper"} | {
    CURVES[k]: f"c{k}" for k in (0, 1, 2, 3, 5)
}  # the variables of style.css, which pages use instead
HUES = ("#E69F00", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#F0E442")
HATCHES = ("", "////", "....")  # for entries that share a hue

# Labels hold users' text: dollar signs must not start a formula, and with one known font `plain` can replace missing glyphs.
STYLE: Any = {
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.titlepad": 5.0,
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.7,
    "axes.unicode_minus": True,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "hatch.linewidth": 0.6,
}


class NotebookFigure(Figure):
    """A figure that notebooks show as a cell's value."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(content, format="png")
        return content.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches, drawn by Agg whatever the user's backend is."""
    figure = NotebookFigure(figsize=(width, height), dpi=DPI, facecolor="white")
    figure.set_layout_engine("constrained", rect=(0.008, 0.01, 0.984, 0.98))
    FigureCanvasAgg(figure)
    return figure


def hue(entry: int) -> str:
    """The colour of an entry; entries count from 1, as in an assignment."""
    return HUES[(entry - 1) % len(HUES)]


def hatch(entry: int) -> str:
    return HATCHES[(entry - 1) // len(HUES) % len(HATCHES)]


def list_below(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    """A legend below the figure in as many columns as fit, limited to entries that look different."""
    most = len(HUES) * len(HATCHES) + 3
    if len(handles) > most:
        more = Patch(facecolor="none", edgecolor="none", label=f"and {len(handles) - most} more")
        handles = [*handles[:most], more]
    if handles:
        widest = 0.6 + max(len(str(handle.get_label())) for handle in handles) / LETTERS
        columns = max(1, min(len(handles), int(figure.get_figwidth() / widest)))
        figure.legend(handles=list(handles), loc="outside lower left", ncols=columns, columnspacing=1.4)


def tidy(ax: Axes, keep: Sequence[str] = ("left", "bottom")) -> None:
    """Keep only the spines in `keep`, with small ticks."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in keep)
    ax.tick_params(which="both", labelsize=8.5, length=3, width=0.7, color=QUIET, labelcolor=INK)
    ax.tick_params(which="minor", length=0)


def headed_figure(width: float, lines: Sequence[str], heights: Sequence[float], margin: float) -> tuple[Figure, Any]:
    """A figure with a header, and the cells of rows with these heights in inches."""
    heights = [0.35 + 0.22 * (len(lines) - 1), *heights]
    figure = new_figure(width, sum(heights) + margin)
    cells = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    _write_header(figure, cells[0], lines)
    return figure, [cells[i] for i in range(1, len(heights))]


def _write_header(figure: Figure, place: SubplotSpec, lines: Sequence[str]) -> None:
    """Write the first line large and bold, the others below it."""
    ax = figure.add_subplot(place)
    ax.axis("off")
    ax.set_gid("header")
    for i, line in enumerate(lines):
        size, weight = (11.5, "bold") if i == 0 else (9.5, "normal")
        at = (0, -0.5 if i == 0 else -5.0 - 14.4 * i)
        text = ax.annotate(line, (0, 1), at, xycoords="axes fraction", textcoords="offset points", va="top")
        text.set(fontsize=size, fontweight=weight, in_layout=False)


def flow(parts: Sequence[str], inches: float) -> list[str]:
    """Join parts by dots into lines that fit the width."""
    return textwrap.wrap("\u00a0\u00a0·  ".join(parts), int(LETTERS * inches))


def plain(text: str, limit: int = 60) -> str:
    """One line of characters that the font has, shortened in the middle."""
    signs = _signs()
    text = "".join(sign if ord(sign) in signs else "?" for sign in " ".join(text.split()))
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[len(text) - half :]}"


@cache
def _signs() -> frozenset[int]:
    file = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans"))
    return frozenset(font_manager.get_font(str(file)).get_charmap())
