"""Motion saliency: the length of dense optical flow (DIS, Kroeger et al. 2016) less the frame's own, so that a moving camera
does not make everything salient."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rlab.policies.video.objectness import opencv

Floats = NDArray[np.float32]


def flow_maps(frames: NDArray[np.uint8]) -> Floats:
    """Frames (t, h, w, 3) uint8 -> (t, h, w) in 0..1; a frame's flow is that to the next one, the last one's that before it."""
    cv2 = opencv()
    if len(frames) < 2 or min(frames.shape[1:3]) < 16:  # DIS needs two frames and room for its pyramid
        return _differences(frames)
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    found = [_salient(finder.calc(one, other, None)) for one, other in pairwise(grey)]
    return np.stack([*found, found[-1]])


def _salient(flow: Floats) -> Floats:
    """(h, w, 2) -> (h, w) in 0..1."""
    own = flow - np.median(flow.reshape(-1, 2), axis=0)
    length = np.hypot(own[..., 0], own[..., 1])
    top = float(length.max())
    return (length / top if top > 0.25 else np.zeros_like(length)).astype(np.float32)  # below it is noise


def _differences(frames: NDArray[np.uint8]) -> Floats:
    """Where frames are too small or too few for flow: the change to the frame before."""
    values = frames.astype(np.float32).mean(3) / 255
    moved = np.abs(np.diff(values, axis=0, prepend=values[:1]))
    top = moved.max(axis=(1, 2), keepdims=True)
    return np.divide(moved, top, out=np.zeros_like(moved), where=top > 0).astype(np.float32)
