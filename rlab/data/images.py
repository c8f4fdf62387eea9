"""Folders of images: flat with a table of labels, or one folder a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from rlab.data.arrays import Bounds, to_float
from rlab.data.batch import Batch
from rlab.data.files import files_below, labels_of
from rlab.data.labels import Classes
from rlab.data.take import Take, check_room
from rlab.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
Size = int | tuple[int, int]
Pixels = NDArray[np.uint8]
Channels = Literal[1, 3]


def image_folder(
    path: str | Path,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    classes: Classes = None,
    size: Size | None = None,
    channels: Channels = 3,
    bounds: Bounds = (0.0, 1.0),
    take: Take | None = None,
) -> Batch:
    """Images (b, channels, h, w). Labels come from a table, else from `labels.csv` beside the images, else from the
    names of the class folders. `size` (a side, or (height, width)) scales to cover it and cuts out the middle."""
    folder = Path(path)
    found = files_below(folder, IMAGES, "images")
    y, names = labels_of(folder, found, labels, label_column, classes)
    rows = (take or Take()).order(len(found))
    ids = tuple(found[i] for i in rows)
    x = read_images([folder / one for one in ids], ids, size, channels, bounds)
    return Batch(x=x, y=y[rows], ids=ids, bounds=bounds, classes=names)


def read_images(
    paths: Sequence[Path], ids: Sequence[str], size: Size | None, channels: Channels, bounds: Bounds
) -> Tensor:
    """Files -> (b, channels, h, w); all corrupt ones are counted before the first is named."""
    sides(size)
    x: Tensor | None = None
    corrupt: list[str] = []
    for row, path in enumerate(paths):
        pixels = _read(path, size, channels)
        if isinstance(pixels, str):
            corrupt.append(f"{ids[row]!r} ({pixels})")
            continue
        one = to_float(pixels, bounds)
        if x is None:
            check_room(len(paths), one.shape)
            x = torch.empty(len(paths), *one.shape)
        x[row] = same_size(one, x, ids[row])
    if corrupt or x is None:
        raise InputError(
            f"{len(corrupt)} of {len(paths)} images cannot be read, first {corrupt[0]}: mend or remove them"
        )
    return x


def same_size(one: Tensor, x: Tensor, name: str) -> Tensor:
    """One sample (c, *size), refused where the batch x (b, c, *size) began with another size."""
    if one.shape != x.shape[1:]:
        raise InputError(
            f"expected samples of one size, got {tuple(x.shape[2:])} and, in {name!r}, {tuple(one.shape[1:])}: "
            f"pass a size"
        )
    return one


def _read(path: Path, size: Size | None, channels: Channels) -> Pixels | str:
    """Pixels (c, h, w), or why there are none."""
    try:
        with Image.open(path) as image:
            image.load()
            return to_pixels(fit(as_mode(ImageOps.exif_transpose(image), channels), size))
    except UnidentifiedImageError:
        return "not an image"
    # What Pillow raises on broken files depends on the format's plug-in.
    except (OSError, SyntaxError, ValueError, IndexError, TypeError, EOFError, Image.DecompressionBombError) as error:
        return str(error) or type(error).__name__


def as_mode(image: Image.Image, channels: Channels) -> Image.Image:
    """Grey, palette, transparent and 16-bit images -> 8-bit RGB, or 8-bit grey for one channel."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.float64) / 257
        image = Image.fromarray(wide.round().clip(0, 255).astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def sides(size: Size | None) -> tuple[int, int]:
    """Height and width; (0, 0) where none are asked for."""
    if size is None:
        return 0, 0
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise InputError(f"expected a size of at least 1 pixel a side, got {size}")
    return height, width


def fit(image: Image.Image, size: Size | None) -> Image.Image:
    """Scaled with its aspect kept until it just covers `size`, then the middle cut out."""
    if size is None:
        return image
    height, width = sides(size)
    if image.size == (width, height):
        return image
    scale = max(width / image.width, height / image.height)
    wide, high = max(width, round(image.width * scale)), max(height, round(image.height * scale))
    left, top = (wide - width) // 2, (high - height) // 2
    scaled = image.resize((wide, high), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + width, top + height))


def to_pixels(image: Image.Image) -> Pixels:
    """(c, h, w) uint8."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
