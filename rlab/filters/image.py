"""What storing and sending does to images and to the frames of a video."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Generator, Tensor

from rlab.core.grid import PatchGrid
from rlab.filters.base import Filter, register

Pixels = NDArray[np.uint8]


def pixelate(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, ..., h, w), every block of pixels replaced by its mean."""
    size, block = tuple(x.shape[2:]), max(1, round(severity))
    sides = (*(1 for _ in size[:-2]), *(min(block, length) for length in size[-2:]))
    grid = PatchGrid(size, sides)
    return grid.expand(grid.reduce(x))


def jpeg(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, ..., h, w), each frame encoded and decoded; values beyond 0..1 widen the range that is coded."""
    each = (len(x), *(1,) * (x.dim() - 1))
    low = x.flatten(1).amin(1).clamp(max=0).view(each)
    span = x.flatten(1).amax(1).clamp(min=1).view(each) - low
    last = ((x - low) / span * 255 + 0.5).to(torch.uint8).movedim(1, -1)
    coded = _coded(last.flatten(0, -4).cpu().numpy(), min(100, max(1, round(100 - severity))))
    back = torch.from_numpy(coded).view(last.shape).movedim(-1, 1).to(x)
    return back / 255 * span + low


def _coded(frames: Pixels, quality: int) -> Pixels:
    """(n, h, w, c) uint8 -> the same; three channels are coded as colours, any others one by one."""
    if frames.shape[-1] == 3:
        return np.stack([_round_trip(frame, quality) for frame in frames])
    planes = [[_round_trip(plane, quality) for plane in np.moveaxis(frame, -1, 0)] for frame in frames]
    return np.moveaxis(np.array(planes), 1, -1)


def _round_trip(pixels: Pixels, quality: int) -> Pixels:
    """(h, w, 3) or (h, w) uint8 -> the same."""
    stream = BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


register(
    Filter(
        name="pixelate",
        apply=pixelate,
        severities=(2.0, 4.0, 8.0, 16.0, 32.0),
        ranks=frozenset({2, 3}),
        clip=True,
        about="too low a resolution; severity is the side of a block in pixels",
        default=4.0,
    )
)
register(
    Filter(
        name="jpeg",
        apply=jpeg,
        severities=(30.0, 50.0, 70.0, 85.0, 95.0),
        ranks=frozenset({2, 3}),
        clip=True,
        about="JPEG compression; severity is 100 minus the encoder's quality",
    )
)
