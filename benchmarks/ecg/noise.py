"""Draw the clinical filters beside recorded noise, and on a real record: python -m benchmarks.ecg.noise [PICTURE].

The recordings (Noise Stress Test Database) and the record (PTB-XL) are read below $RLAB_REAL.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.signal import welch

from benchmarks.data import real
from rlab.data.load import load
from rlab.data.wfdb import NOISE, read_noise
from rlab.filters import Palette
from rlab.filters.clinical import reversal_filters
from rlab.filters.palettes import CLINICAL, RECORDER

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "ecg-clinical.png"
RATE, SECONDS = 360.0, 10
PAIRS = {"baseline_wander": "bw", "electrode_motion": "em", "muscle_noise": "ma"}
OURS, RECORDED, INK = "#1f5fa8", "#c0392b", "#222222"
Values = NDArray[np.float64]


def made(name: str) -> Values:
    """Ten seconds (2, time) of the strongest clinical entry of the filter, in mV."""
    specs = [spec for spec in CLINICAL if spec.startswith(name)]
    silence = torch.zeros(1, 2, round(SECONDS * RATE))
    bank = Palette.of(specs, 1, 2, RATE, "mV").bank(silence, (-torch.inf, torch.inf), [3])
    return bank[0, -1].double().numpy()


def strip(axes: Axes, values: Values, colour: str, title: str) -> None:
    time = np.arange(values.shape[-1]) / RATE
    axes.plot(time, values - np.median(values), color=colour, linewidth=0.7)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_ylabel("mV", fontsize=8)


def spectrum(axes: Axes, ours: Values, recorded: Values) -> None:
    for values, colour, label in ((recorded, RECORDED, "recorded"), (ours, OURS, "filter")):
        hertz, power = welch(values, RATE, nperseg=3600, axis=-1)
        axes.loglog(hertz[1:], np.maximum(power.mean(0)[1:], 1e-9), color=colour, linewidth=1, label=label)
    axes.set(xlim=(0.1, 180), ylim=(1e-7, 30))
    axes.set_title("power, mV²/Hz, over Hz", fontsize=9, loc="left")
    axes.legend(fontsize=7, loc="lower left")


def draw() -> Figure:
    """Three rows of noise, recorded and made, with their spectra; below, a record under each filter."""
    mpl.rcParams.update({"xtick.labelsize": 7, "ytick.labelsize": 7})
    noise = read_noise(str(real("ecg12/nstdb")), RATE)
    record = load(real("ptbxl"), limit=1, order="first")
    own = reversal_filters(record.leads)
    palette = Palette.of([*CLINICAL[:2], *CLINICAL[4:], *RECORDER], 1, 12, record.rate, "mV", own)
    bank = palette.bank(record.x, record.bounds, [0])[0].double().numpy()  # (entries, leads, time)
    chosen = [row for row in range(len(bank)) if row == 0 or "_ll" not in palette.names[row - 1]]
    below = -(-len(chosen) // 3)
    figure = Figure(figsize=(12, 2.0 * (3 + below)), dpi=85, layout="constrained")
    grid = figure.subplots(3 + below, 3)
    for row, (name, begin) in zip(grid, PAIRS.items(), strict=False):
        recorded, ours = noise[NOISE[begin]].double().numpy(), made(name)
        first = recorded[0, : ours.shape[1]]
        strip(row[0], first, RECORDED, f"{NOISE[begin].replace('_', ' ')}")
        strip(row[1], ours[0], OURS, f"{name}, strongest clinical entry")
        spectrum(row[2], ours, recorded)
        reach = 1.1 * max(np.abs(x - np.median(x)).max() for x in (first, ours[0]))
        for axes in row[:2]:
            axes.set_ylim(-reach, reach)
    shown = 5 * round(record.rate or 0)
    for axes, entry in zip(grid[3:].flat, chosen, strict=False):
        time, lead = np.arange(shown) / (record.rate or 1), record.leads.index("II")
        axes.plot(time, bank[0, lead, :shown], color="#bbbbbb", linewidth=0.9)
        axes.plot(time, bank[entry, lead, :shown], color=INK, linewidth=0.8)
        axes.set_title("lead II as recorded" if entry == 0 else palette.names[entry - 1], fontsize=9, loc="left")
    for axes in grid[3:].flat[len(chosen) :]:
        axes.set_axis_off()
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else PICTURE)
