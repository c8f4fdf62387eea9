"""Simulated heartbeats: P, Q, R, S and T as sums of Gaussians, after McSharry et al. 2003 (https://doi.org/10.1109/TBME.2003.808805)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.data.batch import UNBOUNDED, Batch

RATE, LENGTH, QRS = 360, 288, 0.05  # Hz, values, seconds either side of R
CLASSES = ("normal", "atrial premature", "ventricular premature", "ST elevation")
LEADS = 2  # as II and V1
Wave = tuple[float, float, float]  # millivolts in the first lead, seconds after R, seconds of standard deviation
Floats = NDArray[np.float64]
_TIME = np.arange(LENGTH) / RATE


def ecg(rows: NDArray[np.int64], seed: int) -> Batch:
    """Beats (b, 2, 288) in mV at 360 Hz, one a row number; a row's beat depends on the row and the seed alone."""
    made = [_beat(np.random.default_rng((seed, int(row)))) for row in rows]
    return Batch(
        x=torch.from_numpy(np.stack([x for x, _, _ in made]).astype(np.float32)),
        y=torch.tensor([label for _, label, _ in made]),
        ids=tuple(f"simulated-{row:04d}" for row in rows),
        bounds=UNBOUNDED,
        classes=CLASSES,
        masks=torch.from_numpy(np.stack([np.abs(_TIME - r) <= QRS for _, _, r in made])),
        unit="mV",
        rate=float(RATE),
        r_peaks=tuple((round(r * RATE),) for _, _, r in made),
        leads=("II", "V1"),
    )


def _beat(draw: np.random.Generator) -> tuple[Floats, int, float]:
    """One beat (2, 288), its class and the time of its R."""
    label = int(draw.integers(len(CLASSES)))
    peak = 0.36 + draw.uniform(-0.04, 0.04)
    gain = draw.lognormal(0, 0.2)
    x = np.zeros((LEADS, LENGTH))
    for wave in _waves(CLASSES[label], draw):
        lead_two = draw.normal(0.45, 0.2)
        x += gain * np.array([[1.0], [lead_two]]) * _gaussian(wave, peak)
    return x + _noise(draw), label, peak


def _gaussian(wave: Wave, peak: float) -> Floats:
    height, at, width = wave
    bump: Floats = height * np.exp(-0.5 * ((_TIME - peak - at) / width) ** 2)
    return bump


def _waves(name: str, draw: np.random.Generator) -> list[Wave]:
    """The waves of one beat and the T wave of the beat before. The classes overlap: weak cases look alike."""
    normal = draw.normal
    premature = name in ("atrial premature", "ventricular premature")
    before = normal(0.54, 0.06) if premature else normal(0.84, 0.07)  # seconds since the last R
    past = (normal(0.28, 0.06), 0.27 - before + normal(0, 0.01), normal(0.05, 0.006))
    if name == "ventricular premature":
        wide = max(0.018, normal(0.034, 0.007))
        return [past, (normal(1.4, 0.3), 0.0, wide), (normal(-0.35, 0.15), 0.08, wide), (normal(-0.4, 0.15), 0.3, 0.06)]
    p_height = normal(0.0, 0.055) if name == "atrial premature" else normal(0.16, 0.035)
    waves = [past, (p_height, -0.16 + normal(0, 0.012), normal(0.022, 0.003))]
    waves += [(normal(-0.12, 0.05), -0.03, 0.009), (normal(1.1, 0.2), 0.0, normal(0.012, 0.002))]
    waves += [(normal(-0.25, 0.08), 0.032, 0.01), (normal(0.3, 0.07), normal(0.27, 0.015), normal(0.05, 0.006))]
    lift = normal(0.23, 0.055) if name == "ST elevation" else normal(0.0, 0.025)
    return [*waves, (lift, 0.1, 0.03), (lift, 0.17, 0.04)]


def _noise(draw: np.random.Generator) -> Floats:
    """Baseline wander, power-line hum and sensor noise, (2, 288) in mV."""
    each = (LEADS, 1)
    wander = draw.normal(0, 0.08, each) * np.sin(2 * np.pi * (draw.uniform(0.15, 0.5) * _TIME + draw.uniform()))
    hum = draw.normal(0, 0.012, each) * np.sin(2 * np.pi * (50 * _TIME + draw.uniform()))
    total: Floats = wander + hum + draw.normal(0, draw.uniform(0.01, 0.04), (LEADS, LENGTH))
    return total
