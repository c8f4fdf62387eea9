"""A diagnosis as a figure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.figure import Figure

from rlab.present.style import STYLE, WIDE, headed_figure

if TYPE_CHECKING:
    from rlab.diagnosis.report import Diagnosis

COLOURS = {"error": "#D55E00", "warning": "#E69F00", "note": "#777777", "passed": "#009E73"}
_LINE, _LETTERS = 0.19, 110  # inches, and characters of an observation in one line
_NAME, _WORD, _TEXT = 0.02, 0.19, 0.26  # where the columns start, as shares of the width


def draw_checks(diagnosis: Diagnosis) -> Figure:
    """One row per finding and passed check: its name, its outcome in colour, and the observation."""
    rows = [(row["check"], row["outcome"], _lines(row["observation"], row["change"])) for row in diagnosis.records()]
    count = sum(len(lines) for *_, lines in rows) + 0.5 * len(rows)
    with matplotlib.rc_context(STYLE):
        figure, (body,) = headed_figure(WIDE, ["diagnosis", diagnosis.sentence], [_LINE * max(count, 1.0)], 0.3)
        ax = figure.add_subplot(body)
        ax.axis("off")
        ax.set(xlim=(0, 1), ylim=(max(count, 1.0), 0))
        at = 0.5
        for name, outcome, lines in rows:
            ax.plot([0.006], [at], "o", color=COLOURS[outcome], markersize=6)
            ax.text(_NAME, at, name[:28], va="center", fontweight="bold")
            ax.text(_WORD, at, outcome, va="center", color=COLOURS[outcome])
            for line in lines:
                ax.text(_TEXT, at, line, va="center")
                at += 1.0
            at += 0.5
        return figure


def _lines(*parts: str) -> list[str]:
    """What was observed and what to change, in lines that fit."""
    return textwrap.wrap(": ".join(part for part in parts if part), _LETTERS) or [""]
