"""Load images with a class for each pixel, from mask files of the same name in another folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from rlab.data.annotated.boxes import upright_size
from rlab.data.annotated.pictures import with_stem
from rlab.data.annotated.voc import CLASSES, listed_in
from rlab.data.fields import DataFields, check_room
from rlab.data.files import files_below
from rlab.data.fitting import place
from rlab.data.images import IMAGES, look, picture_source
from rlab.data.labels import class_names
from rlab.data.source import Source, Unreadable, readable, reads
from rlab.errors import DataError
from rlab.predictions.maps import IGNORED, encode_map

IMAGE_FOLDERS = ("images", "JPEGImages", "image", "img")
MASK_FOLDERS = ("masks", "SegmentationClass", "mask", "labels", "trimaps", "annotations/trimaps", "annotations")
VOID = 255  # value of pixels without a class in a mask of 8 bits
TRIMAP = {1: 1, 2: 0}  # Oxford-IIIT Pet: object and background; the border, 3, is ignored


def has_maps(folder: Path) -> bool:
    """Whether the folder holds images and masks in folders with the usual names."""
    masks = _place(folder, None, MASK_FOLDERS)
    return _place(folder, None, IMAGE_FOLDERS) is not None and masks is not None and any(masks.glob("*.png"))


@reads("images", "masks", "trimap", "classes", "size", "resize", "channels", "bounds", "split")
def maps(source: DataFields) -> Source:
    """Load images (b, channels, h, w) with a class for each pixel; 255 in a mask, or the border of a trimap, is ignored.

    Masks are PNG files, grey or with a palette, whose values are class numbers, in the folder `masks` (default: masks,
    SegmentationClass or trimaps beside the images). `split` reads ImageSets/Segmentation/<split>.txt of Pascal VOC.
    """
    folder = _place(source.location, source.images, IMAGE_FOLDERS) or source.location
    masks = _place(source.location, source.masks, MASK_FOLDERS)
    if masks is None:
        usual = ", ".join(MASK_FOLDERS)
        raise DataError(f"{source.path!r} has no folder of masks: expected one of {usual}, or pass masks")
    wanted = None if source.split is None else set(listed_in(source.location, "Segmentation", source.split))
    names = [name for name in files_below(folder, IMAGES, "images") if wanted is None or Path(name).stem in wanted]
    chosen = {names[at]: names[at] for at in source.take.any_rows(len(names))}
    found, losses = readable(lambda name: _read(source, folder, masks, name), chosen)
    if not found:
        first = f", first {losses[0][0]!r}, which {losses[0][1]}" if losses else ""
        raise DataError(f"none of {len(losses)} images in {str(folder)!r} has a usable mask{first}")
    sizes = sorted({tuple(each.shape) for each in found.values()})
    if len(sizes) > 1:
        raise DataError(f"expected images of one size, got {sizes[0]} and {sizes[1]}: pass a size (--size 224)")
    y = torch.cat([encode_map(each[None], tuple(each.shape)) for each in found.values()])
    classes = class_names(source.classes) or _usual(source, masks, y)
    if classes and (top := int(y.max())) >= len(classes):
        raise DataError(f"the masks hold the class {top}, but there are {len(classes)} classes: correct classes")
    files = tuple(folder / name for name in found)
    return replace(
        picture_source(source, tuple(found), y, classes, files, "map"), left_out=tuple(losses), numbered=False
    )


def _usual(source: DataFields, masks: Path, y: Tensor) -> tuple[str, ...]:
    if source.trimap:
        return ("background", "object")
    return ("background", *CLASSES) if masks.name == "SegmentationClass" and int(y.max()) <= len(CLASSES) else ()


def _place(folder: Path, named: str | None, usual: Sequence[str]) -> Path | None:
    """The folder that is named, in the data or elsewhere, or else the first of the usual ones that exists."""
    if named is not None:
        return folder / named if (folder / named).is_dir() else Path(named)
    return next((folder / name for name in usual if (folder / name).is_dir()), None)


def _read(source: DataFields, images: Path, masks: Path, name: str) -> Tensor:
    """The class of each pixel of the resized image (h, w) int64."""
    file = with_stem(masks, Path(name).with_suffix("").as_posix())
    if file is None:
        raise Unreadable("has no mask")
    size = upright_size(images / name)
    try:
        mask = read_mask(file)
    except Unreadable as why:
        raise Unreadable(f"has a mask that {why}") from why
    if mask.shape != size:
        raise Unreadable(f"has {size[0]} x {size[1]} pixels, but its mask has {mask.shape[0]} x {mask.shape[1]}")
    if source.trimap:
        known = np.select([mask == value for value in TRIMAP], list(TRIMAP.values()), IGNORED)
    else:
        known = np.where(mask == VOID, IGNORED, mask)
    put = place(size, source.size, source.resize or "crop")
    moved = put.apply(Image.fromarray(known.astype(np.int32)), Image.Resampling.NEAREST, IGNORED)
    return torch.from_numpy(np.asarray(moved).astype(np.int64))


def read_mask(file: Path) -> NDArray[np.int64]:
    """The values of a mask (h, w)."""

    def values(image: Image.Image) -> NDArray[np.int64]:
        if image.mode not in ("1", "L", "P", "I", "I;16"):
            raise Unreadable(f"has colours ({image.mode}): save class numbers, grey or with a palette")
        check_room(2, (image.height, image.width))
        return np.asarray(image).astype(np.int64)

    return look(file, values)
