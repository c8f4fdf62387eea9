"""What each agent is rewarded for beside the shared drop in confidence. Pure functions, a figure a row."""

from __future__ import annotations

import torch
from torch import Tensor


def few_frames(kept: Tensor, limit: int) -> Tensor:
    """kept (n, t) bool -> (n,) in -1..0: the share of frames kept beyond `limit`."""
    over = (kept.sum(1) - limit).clamp(min=0)
    return -over / kept.shape[1]


def representative(frames: Tensor, kept: Tensor) -> Tensor:
    """Features (n, t, k), kept (n, t) with at least one -> (n,) in 0..1: how near the kept frames are to all others.

    Distances count in units of the mean distance between two frames of the clip; a clip that stands still is all alike.
    """
    apart = torch.cdist(frames, frames)
    unit = apart.mean((1, 2)).clamp(min=1e-6)
    nearest = apart.masked_fill(~kept[:, None], torch.inf).amin(2)
    return torch.exp(-nearest.mean(1) / unit)


def on_salient(saliency: Tensor, region: Tensor, kept: Tensor) -> Tensor:
    """Saliency (n, t, q), region (n, t, q) bool, kept (n, t) -> (n,) in -1..1: how much more salient than its frame a region is.

    1 is the frame's most salient patch, 0 its mean; frames without anything salient count as 0.
    """
    size = region.sum(2).clamp(min=1)
    inside = (saliency * region).sum(2) / size
    mean, top = saliency.mean(2), saliency.amax(2)
    gain = ((inside - mean) / (top - mean).clamp(min=1e-3)).clamp(-1, 1)
    on = kept & region.any(2)
    return (gain * on).sum(1) / on.sum(1).clamp(min=1)
