"""What goes wrong between the frames of a video."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register

_VIDEO = frozenset({3})


def frozen_frame(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, t, h, w), every frame shown for `severity` frames and those that follow it left out."""
    hold = max(1, round(severity))
    frames = torch.arange(x.shape[2], device=x.device)
    return x.index_select(2, frames // hold * hold)


def flicker(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, t, h, w), each frame brighter or darker by up to `severity`."""
    steps = torch.rand((len(x), x.shape[2]), generator=generator, device=generator.device, dtype=x.dtype) * 2 - 1
    return x + severity * steps[:, None, :, None, None]


register(
    Filter(
        name="frozen_frame",
        apply=frozen_frame,
        severities=(2.0, 4.0, 8.0, 16.0, 32.0),
        ranks=_VIDEO,
        about="a stream that stalls; severity is the number of frames a picture stands still",
    )
)
register(
    Filter(
        name="flicker",
        apply=flicker,
        severities=(0.05, 0.1, 0.2, 0.3, 0.5),
        ranks=_VIDEO,
        clip=True,
        about="lamps and exposure that vary from frame to frame; severity is the largest step as a share of the range",
    )
)
