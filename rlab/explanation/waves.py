"""How much of a map lies in each wave of a beat."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlab.present.waves import WAVES, waves


def wave_shares(heat: Tensor, r_peaks: Sequence[int], rate: float) -> dict[str, float]:
    """heat (time,) -> the share of what speaks for the class in each wave, and in none of them."""
    values, left = heat.clamp(min=0).double(), torch.ones(len(heat), dtype=torch.bool)
    total, shares = float(values.sum().clamp(min=1e-12)), dict.fromkeys(WAVES, 0.0)
    for name, cut in waves(r_peaks, rate, len(heat)):
        shares[name] += float((values[cut] * left[cut]).sum()) / total  # where windows meet, the earlier has it
        left[cut] = False
    return {**shares, "elsewhere": float(values[left].sum()) / total}
