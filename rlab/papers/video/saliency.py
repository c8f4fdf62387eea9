"""Where in a clip objects are and where they move: objectness and motion, computed once per clip without a model.

Objectness is by edge boxes (Zitnick and Dollar 2014) on Sobel edges, or on structured edges where their model is given. Motion
is the length of dense optical flow (DIS, Kroeger et al. 2016) less the frame's own, so that a moving camera does not make
everything salient.
"""

from __future__ import annotations

from collections import OrderedDict
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
from rlab.storage.digest import digest
from rlab.storage.files import read_tree, write_tree

Floats = NDArray[np.float32]
SIDE = 32  # maps are kept at this many cells a side at most
BOXES = 30  # of a frame; each adds its score to what it covers
_KEPT = 512  # clips in memory
_TOGETHER = 64  # clips between two writes of the file
_JITTER = 8  # grey levels by which a clip's thumbnail may differ and be the same clip
_cache: OrderedDict[str, Tensor] = OrderedDict()


def of_clips(x: Tensor) -> Tensor:
    """Clips (n, c, t, h, w) in 0..1 -> (n, 2, t, rows, columns) in 0..1: objectness, then motion. Each clip only once."""
    return torch.stack([_of_clip(clip) for clip in x]).to(x.device)


def _of_clip(clip: Tensor) -> Tensor:
    frames = _bytes(clip)
    key = digest(frames.tobytes(), frames.shape)
    if key not in _cache:
        both = np.stack([edge_boxes(frames), flow_maps(frames)])
        small = [min(SIDE, side) for side in both.shape[2:]]
        _cache[key] = F.adaptive_avg_pool3d(torch.from_numpy(both)[None], (len(frames), small[0], small[1]))[0]
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return _cache[key]


def _bytes(clip: Tensor) -> NDArray[np.uint8]:
    """(c, t, h, w) in 0..1 -> (t, h, w, 3) uint8."""
    wide = clip if clip.shape[0] == 3 else clip.mean(0, keepdim=True).expand(3, *clip.shape[1:])
    return (wide.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 3, 0).cpu().contiguous().numpy()


def over(maps: Tensor, grid: PatchGrid) -> Tensor:
    """Maps (n, 2, t, rows, columns) -> (n, frames, 2, rows, columns) of the grid's patches."""
    shape = tuple(maps.shape[2:])
    wanted = (shape[0], *(max(side, count) for side, count in zip(shape[1:], grid.shape[1:], strict=True)))
    wide = maps if wanted == shape else F.interpolate(maps, size=wanted, mode="nearest")
    t, rows, columns = grid.shape
    return F.adaptive_avg_pool3d(wide, (t, rows, columns)).transpose(1, 2)


def kept_maps(x: Tensor, ids: Sequence[str], path: Path | None) -> Tensor:
    """The maps of clips x (n, c, t, h, w) in 0..1: from the file where they stand by id, else worked out and added to it."""
    if path is None:
        return of_clips(x)
    stored = _read(path) if path.exists() else {}
    thumbnails = _thumbnails(x)
    for name, thumbnail in zip(ids, thumbnails, strict=True):
        if name in stored and not _alike(stored[name]["thumbnail"], thumbnail):
            raise DataError(
                f"{str(path)!r} holds the objectness and motion of another clip {name!r}: name another file"
            )
    missing = [i for i, name in enumerate(ids) if name not in stored]
    for rows in (missing[at : at + _TOGETHER] for at in range(0, len(missing), _TOGETHER)):  # a stopped run goes on
        maps = (of_clips(x[rows]).cpu() * 255).round().to(torch.uint8)
        stored |= {ids[i]: {"thumbnail": thumbnails[i], "maps": clip} for i, clip in zip(rows, maps, strict=True)}
        write_tree(path, stored)
    return torch.stack([stored[name]["maps"] for name in ids]).float() / 255


def _read(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        stored: dict[str, dict[str, Tensor]] = read_tree(path)
    except (InputError, ValueError) as error:
        raise DataError(f"cannot read {str(path)!r} as maps of objectness and motion: name another file") from error
    return stored


def _thumbnails(x: Tensor) -> Tensor:
    """(n, t, 4, 4) uint8: enough to tell clips apart, and the same however a picture was decoded."""
    small = F.adaptive_avg_pool3d(x.mean(1, keepdim=True), (x.shape[2], 4, 4)).squeeze(1)
    return (small * 255).round().clamp(0, 255).to(torch.uint8).cpu()


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and int((first.int() - second.int()).abs().max()) <= _JITTER


def edge_boxes(frames: NDArray[np.uint8], model: Path | None = None) -> Floats:
    """Frames (t, h, w, 3) uint8 -> (t, h, w) in 0..1. `model` is the structured-edge forest of OpenCV's extra files."""
    cv2 = opencv()
    finder = cv2.ximgproc.createEdgeBoxes()
    finder.setMaxBoxes(BOXES)
    finder.setMinBoxArea(max(16.0, frames.shape[1] * frames.shape[2] / 100))
    forest = None if model is None else _forest(cv2, model)
    return np.stack([_frame(cv2, finder, forest, frame) for frame in frames])


def opencv() -> Any:
    """OpenCV with its contrib modules; another build installed beside it hides them."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtra("opencv-contrib-python-headless", "video") from error
    if "ximgproc" not in dir(cv2):
        raise MissingExtra("opencv-contrib-python-headless", "video")
    return cv2


def _forest(cv2: Any, model: Path) -> Any:
    if not model.is_file():
        raise DataError(f"there is no file {str(model)!r} with a structured-edge model: check the path")
    return cv2.ximgproc.createStructuredEdgeDetection(str(model))


def _frame(cv2: Any, finder: Any, forest: Any, frame: NDArray[np.uint8]) -> Floats:
    edges, along = _sobel(cv2, frame) if forest is None else _structured(cv2, forest, frame)
    covered = np.zeros(frame.shape[:2], np.float32)
    if not edges.any():
        return covered
    boxes, scores = finder.getBoundingBoxes(edges, along)
    for (x, y, w, h), score in zip(boxes, np.ravel(scores), strict=True):
        covered[y : y + h, x : x + w] += score
    top = covered.max()
    return covered / top if top > 0 else covered


def _sobel(cv2: Any, frame: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Edges thinned to ridges, in 0..1, and the direction along each."""
    grey = cv2.GaussianBlur(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (3, 3), 0).astype(np.float32) / 255
    dx, dy = cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)
    strength = np.hypot(dx, dy)
    top = strength.max()
    strength = strength / top if top > 0 else strength
    along = np.mod(np.arctan2(dy, dx) + np.pi / 2, np.pi).astype(np.float32)
    ridge = strength >= cv2.dilate(strength, np.ones((3, 3), np.uint8)) * 0.8
    return np.where(ridge & (strength > 0.1), strength, 0).astype(np.float32), along


def _structured(cv2: Any, forest: Any, frame: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    edges = forest.detectEdges(frame.astype(np.float32) / 255)
    along = forest.computeOrientation(edges)
    return forest.edgesNms(edges, along), along


def flow_maps(frames: NDArray[np.uint8]) -> Floats:
    """Frames (t, h, w, 3) uint8 -> (t, h, w) in 0..1; a frame's flow is that to the next one, the last one's that before it."""
    cv2 = opencv()
    if len(frames) < 2 or min(frames.shape[1:3]) < 16:  # DIS needs two frames and room for its pyramid
        return _differences(frames)
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    maps = [_salient(finder.calc(first, second, None)) for first, second in pairwise(grey)]
    return np.stack([*maps, maps[-1]])


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
