"""Objectness by edge boxes (Zitnick and Dollar 2014) on Sobel edges, or on structured edges where their model is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.errors import InputError, MissingExtra

Floats = NDArray[np.float32]
BOXES = 30  # of a frame; each adds its score to what it covers


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
        raise InputError(f"there is no file {str(model)!r} with a structured-edge model: check the path")
    return cv2.ximgproc.createStructuredEdgeDetection(str(model))


def _frame(cv2: Any, finder: Any, forest: Any, frame: NDArray[np.uint8]) -> Floats:
    edges, along = _sobel(cv2, frame) if forest is None else _structured(cv2, forest, frame)
    found = np.zeros(frame.shape[:2], np.float32)
    if not edges.any():
        return found
    boxes, scores = finder.getBoundingBoxes(edges, along)
    for (x, y, w, h), score in zip(boxes, np.ravel(scores), strict=True):
        found[y : y + h, x : x + w] += score
    top = found.max()
    return found / top if top > 0 else found


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
