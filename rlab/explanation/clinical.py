"""Twelve leads as clinicians read them: three rows of four leads and a rhythm strip, at 25 mm/s and 10 mm/mV on A4, with heat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from rlab.core.channels import LEADS
from rlab.present.inline import figure_image
from rlab.present.style import INK, STYLE, new_figure
from rlab.results.plots.signal import draw_boxes

Array = NDArray[np.float32]
BAND, SIGNED = "YlOrRd", "bwr"  # colours of maps, and of effects
FULL = 0.5  # a change of the probability that gets the full colour
A4 = (297.0, 210.0)  # mm
SPEED, GAIN = 25.0, 10.0  # mm per second and per millivolt
LONGEST, RHYTHM, ROWS, COLUMNS = 10.0, "ii", 3, 4  # seconds of the sheet, the lead of the strip, and the other leads
PULSE = 0.5  # seconds before the traces for the calibration pulse
LOWEST, HIGHEST = 2.0, 4.0  # mV of a row; a larger wave runs into the next row, as on paper
PRINT_DPI = 150
STRONGEST, BANDED = 0.65, 0.9  # opacity of the highest heat, and the share of a row that heat fills


def clinical_sheet(
    x: Array, heat: Array, leads: Sequence[str], rate: float, title: str, notes: Sequence[str], signed: bool = False
) -> Image.Image:
    """x (12, time) in mV and heat (12, time), see `Overlay` -> a page to print; only the first 10 s of a longer record."""
    shown = min(x.shape[1], round(LONGEST * rate))
    centred = x[:, :shown] - np.median(x[:, :shown], axis=1, keepdims=True)
    row = float(np.clip(math.ceil(np.ptp(centred, axis=1).max() * 2) / 2, LOWEST, HIGHEST))
    end, tall = shown / rate, (ROWS + 1) * row
    with matplotlib.rc_context(STYLE):
        figure = new_figure(A4[0] / 25.4, A4[1] / 25.4)
        figure.set_layout_engine("none")
        wide, high = SPEED * (PULSE + end), GAIN * tall
        left, bottom = (A4[0] - wide) / 2 / A4[0], (A4[1] - 22 - high) / A4[1]
        ax = figure.add_axes((left, bottom, wide / A4[0], high / A4[1]))
        ax.set(xlim=(-PULSE, end), ylim=(-tall, 0))
        ax.set_axis_off()
        draw_boxes(ax, (-PULSE, end), (-tall, 0))
        for lead, at, start, stop in _places(leads, shown):
            middle, first = -(at + 0.5) * row, start / rate
            band = (first, stop / rate, middle - BANDED * row / 2, middle + BANDED * row / 2)
            draw_heat(ax, heat[lead, start:stop], band, STRONGEST, signed)
            time, trace = (np.arange(start, stop) + 0.5) / rate, centred[lead, start:stop] + middle
            ax.plot(time, trace, color=INK, linewidth=0.8, zorder=4)
            ax.vlines(first, middle - 0.2, middle + 0.2, color=INK, linewidth=0.6, zorder=4)
            above: dict[str, Any] = {"fontsize": 9, "fontweight": "bold", "va": "top", "zorder": 5}
            ax.text(first + 0.05, middle + 0.42 * row, leads[lead], **above)
        for at in range(ROWS + 1):
            x_pulse, y_pulse = np.array([0.1, 0.15, 0.15, 0.35, 0.35, 0.4]) - PULSE, np.array([0, 0, 1, 1, 0, 0])
            ax.plot(x_pulse, y_pulse - (at + 0.5) * row, color=INK, linewidth=0.8)
        figure.text(left, 1 - 5 / A4[1], title, fontsize=9, va="top")
        cut = "" if shown == x.shape[1] else f", the first {LONGEST:g} s of {x.shape[1] / rate:.3g} s"
        plain = "darker red: stronger evidence for the class"
        key = f"red: evidence for the class, blue: against it, full colour: a change of {FULL:g} or more"
        below = [*notes, f"25 mm/s, 10 mm/mV{cut}, {key if signed else plain}"]
        figure.text(left, bottom - 4 / A4[1], "\n".join(below), fontsize=8, va="top")
        return figure_image(figure, PRINT_DPI)


def _places(leads: Sequence[str], shown: int) -> list[tuple[int, int, int, int]]:
    """(lead, row, start, stop) of every trace; in the last row the rhythm strip."""
    names, quarter = [name.casefold() for name in leads], shown / COLUMNS
    cells = [
        (names.index(name.casefold()), i % ROWS, round(i // ROWS * quarter), round((i // ROWS + 1) * quarter))
        for i, name in enumerate(LEADS)
    ]
    return [*cells, (names.index(RHYTHM), ROWS, 0, shown)]


def draw_heat(
    ax: Axes, heat: Array, extent: tuple[float, float, float, float], strongest: float = 1.0, signed: bool = False
) -> None:
    """A map (time,), see `Overlay`, as a band behind a trace; `strongest` is the opacity of the highest value."""
    look: dict[str, Any] = {"cmap": SIGNED if signed else BAND, "vmin": -int(signed), "vmax": 1}
    opacity = strongest * np.abs(heat[None]).clip(0, 1)
    ax.imshow(heat[None], aspect="auto", extent=extent, alpha=opacity, interpolation="nearest", zorder=2, **look)
