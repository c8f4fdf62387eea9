"""Load folders of images, with a table of labels or one folder per class, and CIFAR-10-C."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import Field
from torch import Tensor

from rlab.data.arrays import rows_of, stored_arrays
from rlab.data.eight_bit import finite, to_float
from rlab.data.fields import UNIT, Channels, Labelled, Pictures, Range, Resizing, Selection, Size, check_room
from rlab.data.fitting import fit, sides
from rlab.data.labels import encode, labels_of, look_up, read_table, table_of
from rlab.data.source import Decoded, Pixels, Source, Unreadable, decoded, reading
from rlab.errors import DataError
from rlab.storage.config import Bounds

T = TypeVar("T")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
# Classes of CIFAR-10
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10C, LABELS, LEVELS = "cifar10c:", "labels.npy", 5


@dataclass(frozen=True)
class Part:
    """An image that is a part of a file."""

    path: Path
    open: Callable[[], IO[bytes]]


Encoded = Path | Part


class ImageOptions(Labelled, Pictures):
    targets: str | None = Field(None, description="images: column with the class that --goal targeted:data aims at")


class LevelOptions(Selection):
    bounds: Range = None


def image_folder(source: ImageOptions) -> Source:
    """Load images (b, channels, h, w).

    Labels come from a table, or else from `labels.csv` in the folder, or else from the names of the class folders.
    `size` (a side, or (height, width)) resizes each image; `resize` says how (default: cover the size and crop the centre).
    """
    names = source.place.files(IMAGES, "images")
    y, classes = labels_of(source, names)
    rows, folder, aims = source.take.rows(y), source.location, None
    files = {names[i]: folder / names[i] for i in rows}
    if source.targets is not None:
        aimed = look_up(read_table(table_of(source), source.targets), list(files), table_of(source).name)
        aims = encode(aimed, tuple(classes) or None)[0]
    return picture_source(source, files, y[rows], classes, aims=aims, whole=True)


def picture_source(
    source: Pictures, items: Mapping[str, Encoded], y: Tensor, classes: tuple[str, ...], **facts: Any
) -> Source:
    """Encoded images, each in a file or in a part of one; the default size is that of the first image."""
    bounds, channels, size = source.bounds or UNIT, source.channels or 3, source.size

    def decode_one(item: Encoded) -> Pixels:
        return _read(item, size, channels, source.resize or "crop")

    shape = None if size is None else (channels, *sides(size))
    files = [(item if isinstance(item, Path) else item.path,) for item in items.values()]
    known = source.facts(classes) | {"bounds": bounds, "eight_bit": finite(bounds)} | facts
    return decoded(decode_one, items, y, files, shape, **known)


def read_image(path: Path, channels: Channels, bounds: Bounds) -> Tensor:
    """One image (channels, h, w)."""
    try:
        with reading():
            return to_float(_read(path, None, channels, "crop"), bounds)
    except Unreadable as why:
        raise DataError(f"the image {str(path)!r} {why}: replace it") from why


def _read(item: Encoded, size: Size | None, channels: Channels, resizing: Resizing) -> Pixels:
    """Pixels (c, h, w)."""

    def pixels(image: Image.Image) -> Pixels:
        check_room(1, (channels, image.height, image.width))
        image.load()
        return to_pixels(fit(as_mode(ImageOps.exif_transpose(image), channels), size, resizing))

    return look(item if isinstance(item, Path) else item.open(), pixels)


def look(file: Path | IO[bytes], at: Callable[[Image.Image], T]) -> T:
    """What `at` finds in an image."""
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


def cifar10c(source: LevelOptions) -> Source:
    """Load the images of one kind and level, cifar10c:FOLDER/fog@3: each file of CIFAR-10-C has five levels after one another.

    https://zenodo.org/records/2535967
    """
    folder, _, chosen = source.path.removeprefix(CIFAR10C).rpartition("/")
    kind, _, level = chosen.partition("@")
    if level not in [str(level) for level in range(1, LEVELS + 1)]:
        example = f"{source.path}/fog@3, or pass the folder to `rlab corrupt`"
        raise DataError(f"expected a kind and a level from 1 to {LEVELS}, got {source.path!r}: name both, {example}")
    kinds_in(Path(folder))  # refuses another folder
    files = Path(folder, LABELS), Path(folder, f"{kind}.npy")
    with stored_arrays(files[0]) as first, stored_arrays(files[1]) as second:
        labels, pixels = np.array(first["x"]), second["x"]
    count, rest = divmod(len(labels), LEVELS)
    same = not rest and labels.ndim == 1 and bool((labels.reshape(LEVELS, count) == labels[:count]).all())
    if not same or len(pixels.shape) != 4 or pixels.shape[0] != len(labels) or pixels.dtype != np.uint8:
        got = f"{len(labels)} labels and {kind}.npy of shape {pixels.shape} and type {pixels.dtype}"
        wanted = f"the same labels {LEVELS} times and as many images (n, h, w, 3) of type uint8"
        raise DataError(f"expected {wanted}, got {got}: get the files of CIFAR-10-C again")
    y, begins = torch.from_numpy(labels[:count].astype(np.int64)), (int(level) - 1) * count
    rows, bounds = source.take.rows(y), source.bounds or UNIT
    classes = CLASSES if int(y.max()) < len(CLASSES) else ()

    def read(wanted: Sequence[int]) -> Decoded:
        chosen = np.moveaxis(rows_of(pixels, [begins + rows[i] for i in wanted]), -1, 1)
        return Decoded(to_float(chosen, bounds), range(len(wanted)))

    ids, facts = tuple(f"{row:05d}" for row in rows), dict[str, Any](bounds=bounds, eight_bit=finite(bounds))
    return Source(
        read, (3, *pixels.shape[1:3]), y[rows], ids, [files] * len(rows), classes=classes, take=source.take, **facts
    )


def kinds_in(folder: Path) -> tuple[str, ...]:
    """The kinds of corruptions in a folder like CIFAR-10-C, in alphabetical order."""
    kinds = tuple(sorted(file.stem for file in folder.glob("*.npy") if file.name != LABELS))
    if not kinds or not (folder / LABELS).is_file():
        lacks = "no folder" if not folder.is_dir() else f"no {LABELS}" if kinds else "no images"
        raise DataError(
            f"expected {LABELS} and fog.npy, ... of CIFAR-10-C, got {lacks} at {str(folder)!r}: check the path"
        )
    return kinds
