"""Ground truth from a folder of mask images, one for each sample by the same name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from rlab.data.batch import Batch
from rlab.data.images import IMAGES, fit
from rlab.errors import InputError


def read_masks(folder: Path, batch: Batch, values: Sequence[int] | None = None, resize: bool = True) -> Tensor:
    """(n, h, w) bool: where a mask image holds one of `values`, or anything but 0; resized and cut as the images were."""
    if batch.kind != "image":
        raise InputError(
            f"mask images are for images, but the data are {batch.kind}: put masks into an .npz with x and y"
        )
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {str(folder)!r} of masks: expected one image for each sample, by its name"
        )
    paths = {path.stem: path for path in sorted(folder.rglob("*")) if path.suffix.lower() in IMAGES}
    stems = [Path(name).stem for name in batch.ids]
    missing = [stem for stem in stems if stem not in paths]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(stems)} samples have no mask in {str(folder)!r}, first {missing[0]!r}: "
            f"name a mask as its image"
        )
    return torch.stack([_read(paths[stem], batch.size, values, resize) for stem in stems])


def _read(path: Path, size: tuple[int, ...], values: Sequence[int] | None, resize: bool) -> Tensor:
    try:
        with Image.open(path) as image:
            values_at = np.asarray(image)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"cannot read the mask {str(path)!r}: {error}") from error
    inside = np.isin(values_at, list(values)) if values else values_at != 0
    inside = inside.any(-1) if inside.ndim > 2 else inside
    if not resize and inside.shape != size:
        raise InputError(
            f"expected masks of size {size}, got {inside.shape} in {path.name!r}: resize them as the images"
        )
    height, width = size
    scaled = fit(Image.fromarray(inside.astype(np.uint8) * 255), (height, width))
    return torch.from_numpy(np.asarray(scaled) > 127)
