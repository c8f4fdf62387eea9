"""Signal-to-noise ratio, used for severities in decibels and as a distance in results."""

from __future__ import annotations

import torch
from torch import Tensor


def snr_db(x0: Tensor, x: Tensor) -> Tensor:
    """Decibels (b,) of the signal x0 without its mean against the change x - x0, both (b, c, *size); infinite without a change."""
    signal = (x0 - x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))).flatten(1)
    return 20 * torch.log10(signal.norm(dim=1) / (x - x0).flatten(1).norm(dim=1))
