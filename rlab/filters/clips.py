"""What happens to clips alone: lost, frozen and jumbled frames, a rolling shutter, and H.264 compression.

As in UCF101-P and HMDB51-P (Schiappa et al. 2022, https://arxiv.org/abs/2207.01398) the kinds are given, but the levels are ours;
those of H.264 are the CRFs of Mini Kinetics-C (Yi et al. 2021, https://arxiv.org/abs/2110.06513).
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import MissingExtra, optional
from rlab.filters.base import CLIPS, Chance, Filter, draw, register
from rlab.filters.corruptions import LEVELS, PREFIX

Change = Callable[[Tensor, float, Chance], Tensor]
# With its macroblock tree, x264 reads memory that nothing has written: the same clip then gives several files, on one thread too.
_X264 = {"preset": "medium", "threads": "1", "x264-params": "threads=1:lookahead-threads=1:sliced-threads=0:mbtree=0"}


def _clip(about: str) -> Callable[[Change], Change]:
    """Register the decorated function as a filter for clips whose severity is a level."""

    def add(apply: Change) -> Change:
        name, levels = PREFIX + getattr(apply, "__name__", ""), tuple(map(float, LEVELS))
        whole = f"{about}; severity is a level from 1 to 5"
        register(Filter(name, apply, levels, CLIPS, clip=True, about=whole, rowwise=True, levels=True))
        return apply

    return add


def _shown(x: Tensor, frames: Tensor) -> Tensor:
    """x: (b, c, t, h, w) with the frames (b, t) at these times instead."""
    index = frames.view(len(x), 1, -1, 1, 1).expand_as(x)
    return x.gather(2, index)


def _uniform(x: Tensor, chance: Chance, count: int) -> Tensor:
    return draw(torch.rand, (len(x), count), chance, torch.float32)


@_clip("frames lost on the way")
def frame_drop(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """A share of the frames is lost; the last one that arrived stays on the screen."""
    share, length = (0.1, 0.2, 0.35, 0.5, 0.7)[round(severity) - 1], x.shape[2]
    lost = _uniform(x, generator, length) < share
    lost[:, 0] = False
    times = torch.arange(length, device=x.device).expand(len(x), length)
    return _shown(x, torch.where(lost, 0, times).cummax(1).values)


@_clip("a picture that stops")
def freeze(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """The picture stops for a share of the clip, from a random time on."""
    length = x.shape[2]
    count = min(length - 1, math.ceil((0.2, 0.35, 0.5, 0.65, 0.8)[round(severity) - 1] * length))
    start = (_uniform(x, generator, 1) * (length - count)).long()
    times = torch.arange(length, device=x.device).expand(len(x), length)
    return _shown(x, torch.where((times >= start) & (times <= start + count), start, times))


@_clip("frames in the wrong order")
def jumble(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Frames change places within a window that grows from 2 to 32 frames."""
    length, window = x.shape[2], 2 ** round(severity)
    chance = _uniform(x, generator, length)
    block = torch.arange(length, device=x.device) // window
    return _shown(x, (block + chance).argsort(1))


@_clip("a shutter that reads rows one after the other")
def rolling_shutter(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Lower rows are read later, the last one up to eight frames."""
    lag, (length, height) = (0.5, 1, 2, 4, 8)[round(severity) - 1], x.shape[2:4]
    later = torch.arange(height, device=x.device) * lag / max(1, height - 1)
    times = (torch.arange(length, device=x.device)[:, None] + later).round().long().clamp(max=length - 1)
    return x.gather(2, times.view(1, 1, length, height, 1).expand_as(x))


@_clip("H.264 compression, as in Mini Kinetics-C")
def h264(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Encode and decode each clip of x: (b, c, t, h, w); unless there are three channels, each is a clip in grey."""
    crf, channels = (23, 30, 37, 44, 51)[round(severity) - 1], x.shape[1]
    clips = x if channels == 3 else x.flatten(0, 1)[:, None].expand(-1, 3, *x.shape[2:])
    pixels = (clips.clamp(0, 1) * 255 + 0.5).to(torch.uint8).movedim(1, -1).cpu().numpy()
    coded = torch.from_numpy(np.stack([_coded(clip, crf) for clip in pixels])).movedim(-1, 1).to(x) / 255
    return coded if channels == 3 else coded.mean(1).view(x.shape)


def _coded(frames: NDArray[np.uint8], crf: int) -> NDArray[np.uint8]:
    """(t, h, w, 3) -> the same shape after H.264, which stores colours for blocks of 2 x 2 pixels."""
    av = optional("av", MissingExtra("av", "video"))
    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    file = io.BytesIO()
    with av.open(file, "w", format="h264") as container:
        stream = container.add_stream("libx264", rate=25, options={**_X264, "crf": str(crf)})
        stream.height, stream.width, stream.pix_fmt = *even.shape[1:3], "yuv420p"
        for frame in even:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    file.seek(0)
    with av.open(file, "r", format="h264") as coded:
        shown = [frame.to_ndarray(format="rgb24") for frame in coded.decode(video=0)]
    stored: NDArray[np.uint8] = np.stack(shown).astype(np.uint8)[:, :height, :width]
    return stored
