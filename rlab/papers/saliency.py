"""Where a clip has objects and where they move: what the spatial agent is rewarded for in training. No attack needs it.

Objectness is by edge boxes (Zitnick and Dollar 2014) on Sobel edges. Motion is the length of dense optical flow (DIS, Kroeger et
al. 2016, https://arxiv.org/abs/1603.03590) minus the frame's median flow, so that a moving camera does not make everything salient.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rlab.core.grid import PatchGrid
from rlab.errors import DataError, InputError, MissingExtra
from rlab.storage.files import read_tree, write_tree

Floats = NDArray[np.float32]
Frames = NDArray[np.uint8]  # (t, h, w, 3)
SIDE = 32  # largest side of a stored map
BOXES = 30  # per frame; each adds its score to the pixels it covers
_TOGETHER = 64  # clips between two writes of the file
_JITTER = 8  # grey levels by which thumbnails of the same clip may differ


def saliency_maps(x: Tensor, ids: Sequence[str], path: Path | None = None) -> Tensor:
    """Clips x (n, c, t, h, w) in 0..1 -> (n, 2, t, rows, columns) in 0..1: objectness, then motion.

    Maps in the file `path` are looked up by id; missing ones are computed and added to it.
    """
    stored = _read(path) if path is not None and path.exists() else {}
    thumbnails = _thumbnails(x)
    for name, thumbnail in zip(ids, thumbnails, strict=True):
        if name in stored and not _alike(stored[name]["thumbnail"], thumbnail):
            raise DataError(
                f"{str(path)!r} holds the objectness and motion of another clip {name!r}: name another file"
            )
    missing = [i for i, name in enumerate(ids) if name not in stored]
    for at in range(0, len(missing), _TOGETHER):  # a training that stops here keeps what it has computed
        for i in missing[at : at + _TOGETHER]:
            stored[ids[i]] = {"thumbnail": thumbnails[i], "maps": (_of_clip(x[i]) * 255).round().to(torch.uint8)}
        if path is not None:
            write_tree(path, stored)
    return torch.stack([stored[name]["maps"] for name in ids]).float() / 255


def over_patches(maps: Tensor, grid: PatchGrid) -> Tensor:
    """Maps (n, 2, t, rows, columns) -> (n, 2, frames, q): their means over the q patches of each frame of the grid."""
    t, rows, columns = grid.shape
    wide = (max(maps.shape[3], rows), max(maps.shape[4], columns))
    if wide != tuple(maps.shape[3:]):
        maps = F.interpolate(maps, size=(maps.shape[2], *wide), mode="nearest")
    return F.adaptive_avg_pool3d(maps, (t, rows, columns)).flatten(3)


def _read(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        stored: dict[str, dict[str, Tensor]] = read_tree(path)
    except (InputError, ValueError) as error:
        raise DataError(f"cannot read {str(path)!r} as maps of objectness and motion: name another file") from error
    return stored


def _thumbnails(x: Tensor) -> Tensor:
    """(n, t, 4, 4) uint8: enough to distinguish clips, whatever decoded them."""
    small = F.adaptive_avg_pool3d(x.mean(1, keepdim=True), (x.shape[2], 4, 4)).squeeze(1)
    return (small * 255).round().clamp(0, 255).to(torch.uint8).cpu()


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and int((first.int() - second.int()).abs().max()) <= _JITTER


def _of_clip(clip: Tensor) -> Tensor:
    """(c, t, h, w) in 0..1 -> (2, t, rows, columns)."""
    wide = clip if clip.shape[0] == 3 else clip.mean(0, keepdim=True).expand(3, *clip.shape[1:])
    frames = (wide.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 3, 0).cpu().contiguous().numpy()
    both = torch.from_numpy(np.stack([objectness(frames), motion(frames)]))
    small = [min(SIDE, side) for side in both.shape[2:]]
    return F.adaptive_avg_pool3d(both[None], (len(frames), small[0], small[1]))[0]


def opencv() -> Any:
    """OpenCV with its contrib modules; another build installed beside it hides them."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtra("opencv-contrib-python-headless", "video") from error
    if "ximgproc" not in dir(cv2):
        raise MissingExtra("opencv-contrib-python-headless", "video")
    return cv2


def objectness(frames: Frames) -> Floats:
    """(t, h, w, 3) -> (t, h, w) in 0..1: summed scores of the edge boxes that cover a pixel."""
    cv2 = opencv()
    finder = cv2.ximgproc.createEdgeBoxes()
    finder.setMaxBoxes(BOXES)
    finder.setMinBoxArea(max(16.0, frames.shape[1] * frames.shape[2] / 100))
    return np.stack([_boxed(cv2, finder, frame) for frame in frames])


def _boxed(cv2: Any, finder: Any, frame: Frames) -> Floats:
    edges, along = _edges(cv2, frame)
    covered = np.zeros(frame.shape[:2], np.float32)
    if not edges.any():
        return covered
    boxes, scores = finder.getBoundingBoxes(edges, along)
    for (x, y, w, h), score in zip(boxes, np.ravel(scores), strict=True):
        covered[y : y + h, x : x + w] += score
    top = covered.max()
    return covered / top if top > 0 else covered


def _edges(cv2: Any, frame: Frames) -> tuple[Floats, Floats]:
    """Edges thinned to ridges, in 0..1, and the direction along each."""
    grey = cv2.GaussianBlur(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (3, 3), 0).astype(np.float32) / 255
    dx, dy = cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)
    strength = np.hypot(dx, dy)
    top = strength.max()
    strength = strength / top if top > 0 else strength
    along = np.mod(np.arctan2(dy, dx) + np.pi / 2, np.pi).astype(np.float32)
    ridge = strength >= cv2.dilate(strength, np.ones((3, 3), np.uint8)) * 0.8
    return np.where(ridge & (strength > 0.1), strength, 0).astype(np.float32), along


def motion(frames: Frames) -> Floats:
    """(t, h, w, 3) -> (t, h, w) in 0..1: flow to the next frame; the last frame has that of the one before it."""
    cv2 = opencv()
    if len(frames) < 2 or min(frames.shape[1:3]) < 16:  # DIS needs two frames and room for its pyramid
        values = frames.astype(np.float32).mean(3) / 255
        return _unit(np.abs(np.diff(values, axis=0, prepend=values[:1])), 0.0)
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    flows = np.stack([finder.calc(first, second, None) for first, second in pairwise(grey)])
    own = flows - np.median(flows.reshape(len(flows), -1, 2), axis=1)[:, None, None]
    maps = _unit(np.hypot(own[..., 0], own[..., 1]), 0.25)  # a shorter flow, in pixels, is noise
    return np.concatenate([maps, maps[-1:]])


def _unit(maps: Floats, least: float) -> Floats:
    """(t, h, w) divided by each frame's largest value; 0 where that is not above `least`."""
    top = maps.max(axis=(1, 2), keepdims=True)
    return np.divide(maps, top, out=np.zeros_like(maps), where=top > least).astype(np.float32)
