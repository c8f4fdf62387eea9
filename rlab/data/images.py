"""Folders of images, flat with a table of labels or one folder a class, and CIFAR-10 in its binary version."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from rlab.data.arrays import to_float
from rlab.data.batch import Batch
from rlab.data.fields import MOST_SIDE, UNIT, Channels, DataFields, Size, check_room, reads
from rlab.data.labels import files_below, labels_of
from rlab.data.source import Decoded, Source, decode
from rlab.errors import InputError
from rlab.storage.config import Bounds
from rlab.storage.outside import regular

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
Pixels = NDArray[np.uint8]
# CIFAR-10's classes, and its records of a label byte and 3,072 pixel bytes.
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE, RECORD = (3, 32, 32), 1 + 3 * 32 * 32
FILES = {"train": "data_batch_*.bin", "test": "test_batch.bin"}


@reads("labels", "label_column", "classes", "size", "channels", "bounds")
def image_folder(source: DataFields) -> Batch:
    """Images (b, channels, h, w). Labels come from a table, else from `labels.csv` beside the images, else from the
    names of the class folders. `size` (a side, or (height, width)) scales to cover it and cuts out the middle."""
    ids, y, classes = _listed(source)
    bounds = source.bounds or UNIT
    x = read_images([source.location / name for name in ids], ids, source.size, source.channels or 3, bounds)
    return Batch(x=x, y=y, ids=ids, bounds=bounds, classes=classes)


def image_source(source: DataFields) -> Source:
    """The same, each image decoded when it is asked for."""
    ids, y, classes = _listed(source)
    files = tuple(source.location / name for name in ids)
    return picture_source(source, lambda rows: [files[i] for i in rows], ids, y, classes, files, one_each=True)


def _listed(source: DataFields) -> tuple[tuple[str, ...], Tensor, tuple[str, ...]]:
    names = files_below(source.location, IMAGES, "images")
    y, classes = labels_of(source, names)
    rows = source.take.order(len(names))
    return tuple(names[i] for i in rows), y[rows], classes


def picture_source(
    source: DataFields,
    open_rows: Callable[[Sequence[int]], Sequence[Path | IO[bytes]]],
    ids: tuple[str, ...],
    y: Tensor,
    classes: tuple[str, ...],
    files: tuple[Path, ...],
    one_each: bool = False,
) -> Source:
    """Encoded images, which `open_rows` gives; without a size in the options, they have that of the first."""
    bounds, channels = source.bounds or UNIT, source.channels or 3

    def one(file: Path | IO[bytes]) -> Tensor | str:
        pixels = _read(file, source.size, channels)
        return pixels if isinstance(pixels, str) else to_float(pixels, bounds)

    def read(rows: Sequence[int]) -> Decoded:
        return decode(one, open_rows(rows), [ids[i] for i in rows])

    shape: tuple[int, ...] = (channels, *sides(source.size))
    if source.size is None and ids:
        first = one(open_rows([0])[0])
        if isinstance(first, str):
            raise InputError(f"the first image, {ids[0]!r}, cannot be read ({first}): mend it, or pass a size")
        shape = tuple(first.shape)
    return Source(read, shape, y, ids, files, one_each, bounds, classes)


def read_images(
    paths: Sequence[Path], ids: Sequence[str], size: Size | None, channels: Channels, bounds: Bounds
) -> Tensor:
    """Files -> (b, channels, h, w); all corrupt ones are counted before the first is named."""
    if size is not None:
        check_room(len(paths), (channels, *sides(size)))
    x: Tensor | None = None
    corrupt: list[str] = []
    for row, path in enumerate(paths):
        with warnings.catch_warnings():  # not within `_read`, which several threads call
            warnings.simplefilter("ignore")  # what is wrong is said below, once
            pixels = _read(path, size, channels)
        if isinstance(pixels, str):
            corrupt.append(f"{ids[row]!r} ({pixels})")
            continue
        image = to_float(pixels, bounds)
        if x is None:
            check_room(len(paths), image.shape)
            x = torch.empty(len(paths), *image.shape)
        x[row] = same_size(image, x, ids[row])
    if corrupt or x is None:
        raise InputError(f"{len(corrupt)} of {len(paths)} images cannot be read, first {corrupt[0]}: mend them")
    return x


def same_size(sample: Tensor, x: Tensor, name: str) -> Tensor:
    """One sample (c, *size), refused where the batch x (b, c, *size) began with another size."""
    if sample.shape != x.shape[1:]:
        sizes = f"{tuple(x.shape[2:])} and, in {name!r}, {tuple(sample.shape[1:])}"
        raise InputError(f"expected samples of one size, got {sizes}: pass a size")
    return sample


def _read(file: Path | IO[bytes], size: Size | None, channels: Channels) -> Pixels | str:
    """Pixels (c, h, w), or why there are none."""
    try:
        with Image.open(file) as image:
            check_room(1, (channels, image.height, image.width))
            image.load()
            return to_pixels(fit(as_mode(ImageOps.exif_transpose(image), channels), size))
    except InputError:  # too large for this machine
        raise
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # what Pillow raises on a broken file depends on the format's plug-in
        return str(error) or type(error).__name__


def as_mode(image: Image.Image, channels: Channels) -> Image.Image:
    """Grey, palette, transparent and 16-bit images -> 8-bit RGB, or 8-bit grey for one channel.

    Floating-point pixels have no range that is known, so they are refused."""
    if image.mode == "F":
        raise ValueError("it holds floating-point pixels: save it with 8 or 16 bits, or as .npz with its bounds")
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.float64) / 257
        if not 0 <= wide.min() <= wide.max() <= 255:
            raise ValueError("it holds values beyond 16 bits: save it with 8 or 16 bits")
        image = Image.fromarray(wide.round().clip(0, 255).astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def sides(size: Size | None) -> tuple[int, int]:
    """Height and width; (0, 0) where none are asked for."""
    if size is None:
        return 0, 0
    height, width = (size, size) if isinstance(size, int) else size
    if not 1 <= min(height, width) <= max(height, width) <= MOST_SIDE:
        raise InputError(f"expected a size from 1 to {MOST_SIDE} pixels a side, got {size}")
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
    check_room(1, (3, high, wide))
    left, top = (wide - width) // 2, (high - height) // 2
    scaled = image.resize((wide, high), Image.Resampling.BILINEAR)
    return scaled.crop((left, top, left + width, top + height))


def to_pixels(image: Image.Image) -> Pixels:
    """(c, h, w) uint8."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


@reads("split", "bounds")
def cifar10(source: DataFields) -> Batch:
    """Images (b, 3, 32, 32) from one .bin file or from a folder of them: `split` train or test, both where not said.

    https://www.cs.toronto.edu/~kriz/cifar.html"""
    files, bounds = _files(source.location, source.split), source.bounds or UNIT
    records = np.concatenate([read_records(file) for file in files])
    ids = [f"{file.stem}:{i:05d}" for file in files for i in range(file.stat().st_size // RECORD)]
    rows = source.take.order(len(records))
    check_room(len(rows), SHAPE)
    pixels = records[rows, 1:].reshape(-1, *SHAPE)
    y = torch.from_numpy(records[rows, 0].astype(np.int64))
    return Batch(x=to_float(pixels, bounds), y=y, ids=tuple(ids[i] for i in rows), bounds=bounds, classes=CLASSES)


def read_records(path: Path) -> NDArray[np.uint8]:
    """One .bin file -> (n, 3073)."""
    try:
        regular(path)
        flat = np.fromfile(path, np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r} ({error}): check the file") from error
    if not len(flat) or len(flat) % RECORD:
        size = f"expected records of {RECORD} bytes in {path.name!r}, got {len(flat)} bytes"
        raise InputError(f"{size}: the file is incomplete or not the binary version of CIFAR-10")
    records = flat.reshape(-1, RECORD)
    if records[:, 0].max() >= len(CLASSES):
        labels = f"expected labels in 0..9 in {path.name!r}, got {records[:, 0].max()}"
        raise InputError(f"{labels}: the file is not the binary version of CIFAR-10")
    return records


def is_cifar(path: Path) -> bool:
    """Whether this is a CIFAR-10 binary file, or a folder that holds one."""
    return path.suffix == ".bin" or any(any(path.glob(pattern)) for pattern in FILES.values())


def is_pickled_cifar(path: Path) -> bool:
    """Whether this is CIFAR's Python version: pickled files with the binary version's names and no ending."""
    names = ("data_batch_1", "test_batch")
    return path.name in (*names, *(f"data_batch_{i}" for i in range(2, 6))) or any((path / n).is_file() for n in names)


def _files(path: Path, split: str | None) -> list[Path]:
    if path.is_file():
        if split is not None:
            raise InputError(f"{str(path)!r} is one file: split is for a folder of them")
        return [path]
    if split not in (None, *FILES):
        raise InputError(f"expected split train or test, got {split!r}")
    patterns = FILES.values() if split is None else [FILES[split]]
    files = [file for pattern in patterns for file in sorted(path.glob(pattern))]
    if not files:
        raise InputError(f"the folder {str(path)!r} holds no {' or '.join(patterns)}: get CIFAR-10's binary version")
    return files
