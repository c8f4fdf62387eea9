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
TITLE_SIZE = 11.5
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


def swatch(colour: str, hatching: str, label: str, alpha: float = 0.35) -> Patch:
    return Patch(facecolor=(colour, alpha), edgecolor=colour, hatch=hatching, linewidth=1.2, label=label)


def list_below(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    """A legend below the figure in as many columns as fit, limited to entries that look different."""
    most = len(HUES) * len(HATCHES) + 3
    if len(handles) > most:
        more = Patch(facecolor="none", edgecolor="none", label=f"and {len(handles) - most} more")
        handles = [*handles[:most], more]
    if handles:
        widest = 0.6 + max(width_of(str(handle.get_label()), 9.0) for handle in handles)
        columns = max(1, min(len(handles), int((figure.get_figwidth() - 0.2) / widest)))
        figure.legend(handles=list(handles), loc="outside lower left", ncols=columns, columnspacing=1.4)


def tidy(ax: Axes, keep: Sequence[str] = ("left", "bottom")) -> None:
    """Keep only the spines in `keep`, with small ticks."""
    for side, spine in ax.spines.items():
        spine.set_visible(side in keep)
    ax.tick_params(which="both", labelsize=8.5, length=3, width=0.7, color=QUIET, labelcolor=INK)
    ax.tick_params(which="minor", length=0)


def headed_figure(width: float, lines: Sequence[str], heights: Sequence[float], margin: float) -> tuple[Figure, Any]:
    """A figure with a header, and the cells of rows with these heights in inches."""
    heights = [0.3 + 0.2 * (len(lines) - 1), *heights]
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
        size, weight = (TITLE_SIZE, "bold") if i == 0 else (9.5, "normal")
        at = (0, -0.5 if i == 0 else -5.0 - 14.4 * i)
        text = ax.annotate(line, (0, 1), at, xycoords="axes fraction", textcoords="offset points", va="top")
        text.set(fontsize=size, fontweight=weight, in_layout=False)


def flow(parts: Sequence[str], inches: float, size: float = 9.5, weight: str = "normal") -> list[str]:
    """Join parts by dots into lines that fit the width."""
    room = 0.985 * inches - 0.35  # letters snap to pixels, so a line is slightly wider than measured
    letters = int(room * 72 / (0.7 * size))  # for parts that must be broken
    lines: list[str] = []
    for part in parts:
        for at, piece in enumerate([part] if width_of(part, size, weight) <= room else textwrap.wrap(part, letters)):
            longer = f"{lines[-1]}  ·  {piece}" if lines else ""
            if lines and not at and width_of(longer, size, weight) <= room:
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines


def plain(text: str, limit: int = 60) -> str:
    """One line of characters that the font has, shortened in the middle."""
    signs = _signs()
    text = "".join(sign if ord(sign) in signs else "?" for sign in " ".join(text.split()))
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[len(text) - half :]}"


def width_of(text: str, size: float, weight: str = "normal") -> float:
    """Inches."""
    font = font_manager.get_font(font_file(weight))
    font.set_size(size, 72)
    font.set_text(text)
    return float(font.get_width_height()[0]) / 64 / 72


@cache
def font_file(weight: str) -> str:
    return str(font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans", weight=weight)))


@cache
def _signs() -> frozenset[int]:
    return frozenset(font_manager.get_font(font_file("normal")).get_charmap())
