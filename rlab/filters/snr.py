"""Signal-to-noise ratio: the severity of a filter in decibels, and a distance of results."""

from __future__ import annotations

import torch
from torch import Tensor


def snr_db(x0: Tensor, x: Tensor) -> Tensor:
    """(b, c, *size) twice -> (b,): decibels of the signal without its mean; infinite where nothing changed."""
    signal = (x0 - x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))).flatten(1)
    return 20 * torch.log10(signal.norm(dim=1) / (x - x0).flatten(1).norm(dim=1))
