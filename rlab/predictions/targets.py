"""Check what is true of each sample, as rows: boxes, maps or numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rlab.errors import DataError
from rlab.predictions.boxes import NOBODY, TARGET_COLUMNS, Boxes, TargetBoxes, area
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import IGNORED, sampled

_OUTSIDE = 1.0  # pixels that a box may reach beyond its image, because annotations are rounded


def check_targets(kind: Prediction, y: Tensor, size: Sequence[int], ids: Sequence[str]) -> None:
    """Refuse rows y (n, ...) that are not what is true of n samples of this size."""
    if kind in _CHECKS:
        if y.dim() != 2 or not y.numel():
            raise DataError(f"expected a row of {kind} for each sample, got shape {tuple(y.shape)}")
        _CHECKS[kind](y, size, ids)


def own_targets(kind: Prediction, rows: Tensor, size: Sequence[int], score: float = 0.3) -> Tensor:
    """A model's own answers (n, k) as what is true; of boxes, those with at least this score, cut at the edges of the input."""
    if kind == "map":
        return rows.long()
    if kind == "numbers":
        return rows.float()
    found = Boxes.decode(rows)
    most = torch.tensor([size[-1], size[-2]] * 2, dtype=rows.dtype, device=rows.device)
    xyxy = torch.minimum(found.xyxy.clamp(min=0), most)
    sure = (found.score >= score) & (area(xyxy) > 0)
    return TargetBoxes(xyxy, found.label).only(sure).encode()


def _check_boxes(y: Tensor, size: Sequence[int], ids: Sequence[str]) -> None:
    if y.dtype != torch.float32 or y.shape[1] % TARGET_COLUMNS:
        shape = f"{y.dtype} of shape {tuple(y.shape)}"
        raise DataError(f"expected float32 rows of {TARGET_COLUMNS} values for each object, got {shape}")
    boxes = TargetBoxes.decode(y)
    classes = y.view(len(y), -1, TARGET_COLUMNS)[..., 4]
    if not ((classes == classes.round()) & (classes >= NOBODY)).all():
        raise DataError("expected the class of an object as a whole number of at least 0 (-1: no object)")
    width, height = float(size[-1]), float(size[-2]) if len(size) > 1 else math.nan
    low, high = boxes.xyxy[..., :2], boxes.xyxy[..., 2:]
    most = torch.tensor([width, height], device=y.device)
    inside = ((low >= -_OUTSIDE) & (high <= most + _OUTSIDE) & (low < high)).all(-1)
    if (wrong := (boxes.there & ~inside).nonzero()).numel():
        row, at = wrong[0].tolist()
        corners = ", ".join(f"{value:g}" for value in boxes.xyxy[row, at].tolist())
        raise DataError(
            f"expected boxes left, top, right, bottom within {width:g} x {height:g} pixels, got ({corners}) of {ids[row]!r}: "
            "check their order and scale"
        )


def _check_map(y: Tensor, size: Sequence[int], ids: Sequence[str]) -> None:
    points = math.prod(sampled(size))
    if y.dtype != torch.int64 or y.shape[1] != points:
        raise DataError(f"expected int64 maps with {points} points, got {y.dtype} of shape {tuple(y.shape)}")
    if (wrong := (y < IGNORED).any(1)).any():
        raise DataError(f"expected classes of at least 0 in a map (-1: ignored), got less for {_first(wrong, ids)}")


def _check_numbers(y: Tensor, size: Sequence[int], ids: Sequence[str]) -> None:
    if y.dtype != torch.float32:
        raise DataError(f"expected float32 numbers, got {y.dtype}")
    if (wrong := ~torch.isfinite(y).all(1)).any():
        raise DataError(f"expected finite numbers, got NaN or an infinite one for {_first(wrong, ids)}")


def _first(wrong: Tensor, ids: Sequence[str]) -> str:
    return repr(ids[int(wrong.nonzero()[0])])


_CHECKS: dict[Prediction, Callable[[Tensor, Sequence[int], Sequence[str]], None]] = {
    "boxes": _check_boxes,
    "map": _check_map,
    "numbers": _check_numbers,
}
