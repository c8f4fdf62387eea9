"""Arrays of boxes, maps or numbers as rows, one per sample."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rlab.data.numpy_files import Array
from rlab.errors import DataError
from rlab.predictions.boxes import TARGET_COLUMNS, TargetBoxes
from rlab.predictions.kinds import WORDS, Prediction
from rlab.predictions.maps import encode_map

_SHAPES: dict[Prediction, str] = {
    "boxes": "(n, m, 5): left, top, right, bottom and class (-1: no object)",
    "map": "(n, height, width) of class numbers",
    "numbers": "(n,) or (n, k)",
}


def encode_targets(y: Array, target: Prediction) -> Tensor:
    """Boxes (n, m, 5), maps (n, *size) or numbers (n,) or (n, k) -> rows as a `Batch` holds them."""
    fits = {
        "boxes": y.ndim == 3 and y.shape[-1] == TARGET_COLUMNS,
        "map": y.ndim >= 3,
        "numbers": y.ndim in (1, 2),
    }
    if not fits[target] or y.dtype.kind not in "biuf" or not y.size:
        raise DataError(f"expected {WORDS[target]} as {_SHAPES[target]}, got {y.dtype} of shape {y.shape}")
    values = torch.from_numpy(np.ascontiguousarray(y, np.float64))
    if target == "boxes":
        return TargetBoxes(values[..., :4].float(), values[..., 4].long()).encode()
    if target == "map":
        return encode_map(values.long(), tuple(y.shape[1:]))
    return values.float().reshape(len(y), -1)
