"""The waves of a beat by name, and how much of a map lies in each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

WAVES = {
    "P": (-0.20, -0.06),
    "QRS": (-0.06, 0.06),
    "T": (0.10, 0.40),
}  # seconds around R: a convention, not a delineation


def waves(r_peaks: Sequence[int], rate: float | None, length: int) -> list[tuple[str, slice]]:
    """Where each wave of each beat lies along time, cut at the ends; none where rate or peaks are unknown."""
    found: list[tuple[str, slice]] = []
    if not rate:
        return found
    for peak in r_peaks:
        for name, (start, stop) in WAVES.items():
            cut = slice(max(0, round(peak + start * rate)), min(length, round(peak + stop * rate)))
            if cut.start < cut.stop:
                found.append((name, cut))
    return found


def wave_shares(heat: Tensor, r_peaks: Sequence[int], rate: float) -> dict[str, float]:
    """heat (time,) -> the share of what speaks for the class in each wave, and in none of them."""
    values, left = heat.clamp(min=0).double(), torch.ones(len(heat), dtype=torch.bool)
    total, shares = float(values.sum().clamp(min=1e-12)), dict.fromkeys(WAVES, 0.0)
    for name, cut in waves(r_peaks, rate, len(heat)):
        shares[name] += float((values[cut] * left[cut]).sum()) / total  # where windows meet, the earlier has it
        left[cut] = False
    return {**shares, "elsewhere": float(values[left].sum()) / total}
