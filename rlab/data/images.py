"""Load folders of images, with a table of labels or one folder per class, and CIFAR-10-C."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from rlab.data.eight_bit import finite, to_float
from rlab.data.fields import UNIT, Channels, DataFields, Resizing, Size, check_room
from rlab.data.files import files_below
from rlab.data.fitting import fit, sides
from rlab.data.labels import aims_of, labels_of
from rlab.data.numpy_files import open_npy, read_npy
from rlab.data.source import Decoded, Pixels, Source, Unreadable, decode, own_files, reading, reads
from rlab.errors import DataError
from rlab.predictions.kinds import Prediction
from rlab.storage.config import Bounds

T = TypeVar("T")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
# Classes of CIFAR-10
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10C, LABELS, LEVELS = "cifar10c:", "labels.npy", 5


@reads("target", "labels", "label_column", "targets", "classes", "size", "resize", "channels", "bounds")
def image_folder(source: DataFields) -> Source:
    """Load images (b, channels, h, w).

    Labels come from a table, or else from `labels.csv` in the folder, or else from the names of the class folders.
    `size` (a side, or (height, width)) resizes each image; `resize` says how (default: cover the size and crop the centre).
    """
    names = files_below(source.location, IMAGES, "images")
    y, classes = labels_of(source, names)
    rows = source.take.rows(y)
    ids = tuple(names[i] for i in rows)
    files = tuple(source.location / name for name in ids)
    made = picture_source(source, ids, y[rows], classes, files, source.target or "classes")
    return replace(made, aims=aims_of(source, ids, classes), whole=True)


def picture_source(
    source: DataFields,
    ids: tuple[str, ...],
    y: Tensor,
    classes: tuple[str, ...],
    files: tuple[Path, ...],
    target: Prediction = "classes",
    opened: Callable[[Sequence[int]], Sequence[IO[bytes]]] | None = None,
) -> Source:
    """Encoded images, one in each file, or those that `opened` opens by row; the default size is that of the first image."""
    bounds, channels = source.bounds or UNIT, source.channels or 3

    def decode_one(file: Path | IO[bytes]) -> Pixels:
        return _read(file, source.size, channels, source.resize or "crop")

    def read(rows: Sequence[int]) -> Decoded:
        images: Sequence[Path | IO[bytes]] = [files[i] for i in rows] if opened is None else opened(rows)
        return decode(decode_one, images, [ids[i] for i in rows], bounds)

    shape: tuple[int, ...] = (channels, *sides(source.size))
    if source.size is None and ids:
        try:
            shape = decode_one(files[0] if opened is None else opened([0])[0]).shape
        except Unreadable as why:
            raise DataError(f"cannot read the first image, {ids[0]!r} ({why}): replace it, or pass a size") from why
    facts = source.facts(classes) | {"target": target, "bounds": bounds, "eight_bit": finite(bounds)}
    return Source(read, shape, y, ids, files, parts=own_files(len(ids)) if opened is None else (), **facts)


def read_images(
    paths: Sequence[Path], ids: Sequence[str], size: Size | None, channels: Channels, bounds: Bounds
) -> Tensor:
    """Read files into (b, channels, h, w); one error counts all files that cannot be read."""
    with warnings.catch_warnings(action="ignore"):  # not in `_read`, which several threads call
        values = decode(lambda file: _read(file, size, channels, "crop"), paths, ids, bounds)
    if values.losses or values.x is None:
        name, reason = values.losses[0]
        count = f"{len(values.losses)} of {len(paths)} images cannot be read"
        raise DataError(f"{count}, first {name!r} ({reason}): replace them")
    return values.x


def _read(file: Path | IO[bytes], size: Size | None, channels: Channels, resizing: Resizing) -> Pixels:
    """Pixels (c, h, w)."""

    def pixels(image: Image.Image) -> Pixels:
        check_room(1, (channels, image.height, image.width))
        image.load()
        return to_pixels(fit(as_mode(ImageOps.exif_transpose(image), channels), size, resizing))

    return look(file, pixels)


def look(file: Path | IO[bytes], at: Callable[[Image.Image], T]) -> T:
    """What `at` finds in an image."""
    with reading():
        try:
            with Image.open(file) as image:
                return at(image)
        except UnidentifiedImageError:
            raise Unreadable("is not an image") from None


def as_mode(image: Image.Image, channels: Channels) -> Image.Image:
    """Convert grey, palette, transparent and 16-bit images to 8-bit RGB, or to 8-bit grey for one channel.

    Floating-point pixels raise an error, because their range is unknown.
    """
    if image.mode == "F":
        raise ValueError("floating-point pixels: save it with 8 or 16 bits, or as .npz with its bounds")
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.float64) / 257
        if not 0 <= wide.min() <= wide.max() <= 255:
            raise ValueError("values beyond 16 bits: save it with 8 or 16 bits")
        image = Image.fromarray(wide.round().clip(0, 255).astype(np.uint8))
    return image.convert("RGB" if channels == 3 else "L")


def to_pixels(image: Image.Image) -> Pixels:
    """(c, h, w) uint8."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


@reads("bounds")
def cifar10c(source: DataFields) -> Source:
    """Load the images of one kind and level, cifar10c:FOLDER/fog@3: each file of CIFAR-10-C has five levels after one another.

    https://zenodo.org/records/2535967
    """
    folder, _, chosen = source.path.removeprefix(CIFAR10C).rpartition("/")
    kind, _, level = chosen.partition("@")
    if level not in [str(level) for level in range(1, LEVELS + 1)]:
        example = f"{source.path}/fog@3, or pass the folder to `rlab corrupt`"
        raise DataError(f"expected a kind and a level from 1 to {LEVELS}, got {source.path!r}: name both, {example}")
    kinds_in(Path(folder))  # refuses another folder
    labels, pixels = read_npy(Path(folder, LABELS)), open_npy(Path(folder, f"{kind}.npy"))
    count, rest = divmod(len(labels), LEVELS)
    same = not rest and labels.ndim == 1 and bool((labels.reshape(LEVELS, count) == labels[:count]).all())
    if not same or len(pixels.shape) != 4 or pixels.shape[0] != len(labels) or pixels.dtype != np.uint8:
        got = f"{len(labels)} labels and {kind}.npy of shape {pixels.shape} and type {pixels.dtype}"
        wanted = f"the same labels {LEVELS} times and as many images (n, h, w, 3) of type uint8"
        raise DataError(f"expected {wanted}, got {got}: get the files of CIFAR-10-C again")
    y, first = torch.from_numpy(labels[:count].astype(np.int64)), (int(level) - 1) * count
    rows, bounds = source.take.rows(y), source.bounds or UNIT
    facts = source.facts(CLASSES if int(y.max()) < len(CLASSES) else ())
    facts |= {"numbered": False, "bounds": bounds, "eight_bit": finite(bounds)}

    def read(wanted: Sequence[int]) -> Decoded:
        chosen = np.moveaxis(pixels[[first + rows[i] for i in wanted]], -1, 1)
        return Decoded(to_float(chosen, bounds), range(len(wanted)))

    ids, files = tuple(f"{row:05d}" for row in rows), (Path(folder, LABELS), Path(folder, f"{kind}.npy"))
    return Source(read, (3, *pixels.shape[1:3]), y[rows], ids, files, **facts)


def kinds_in(folder: Path) -> tuple[str, ...]:
    """The kinds of corruptions in a folder like CIFAR-10-C, in alphabetical order."""
    kinds = tuple(sorted(file.stem for file in folder.glob("*.npy") if file.name != LABELS))
    if not kinds or not (folder / LABELS).is_file():
        lacks = "no folder" if not folder.is_dir() else f"no {LABELS}" if kinds else "no images"
        raise DataError(
            f"expected {LABELS} and fog.npy, ... of CIFAR-10-C, got {lacks} at {str(folder)!r}: check the path"
        )
    return kinds


def is_pickled_cifar(path: Path) -> bool:
    """Whether the path is the Python version of CIFAR-10, whose files are pickles without a suffix."""
    names = ("test_batch", *(f"data_batch_{i}" for i in range(1, 6)))
    return path.name in names or any((path / name).is_file() for name in names)
