"""Load images with a class for each pixel, from mask files of the same name in another folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from torch import Tensor

from rlab.data.annotated.boxes import one_size, upright_size
from rlab.data.annotated.files import VOC, listed_in, with_stem
from rlab.data.fields import Pictures, Split, check_room
from rlab.data.files import Place
from rlab.data.fitting import place
from rlab.data.images import IMAGES, look, picture_source
from rlab.data.labels import class_names
from rlab.data.source import Source, Unreadable, first_loss, readable
from rlab.errors import DataError
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import IGNORED, encode_map

IMAGE_FOLDERS = ("images", "JPEGImages", "image", "img")
MASK_FOLDERS = ("masks", "SegmentationClass", "mask", "labels", "trimaps", "annotations/trimaps", "annotations")
VOID = 255  # value of pixels without a class in a mask of 8 bits
TRIMAP = {1: 1, 2: 0}  # Oxford-IIIT Pet: object and background; the border, 3, is ignored


def has_maps(folder: Path) -> bool:
    """Whether the folder holds images and masks in folders with the usual names."""
    masks = _place(folder, None, MASK_FOLDERS)
    return _place(folder, None, IMAGE_FOLDERS) is not None and masks is not None and any(masks.glob("*.png"))


class MapOptions(Pictures):
    holds: ClassVar[tuple[Prediction, ...]] = ("map",)

    images: str | None = Field(None, description="boxes, maps: folder of the images (default: searched for)")
    masks: str | None = Field(None, description="maps: folder of mask files (default: masks, SegmentationClass, ...)")
    trimap: bool | None = Field(
        None, description="maps: masks mark object 1, background 2 and border 3, as in Oxford Pets"
    )
    split: Split = None


def maps(source: MapOptions) -> Source:
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
    names = [name for name in Place(folder).files(IMAGES, "images") if wanted is None or Path(name).stem in wanted]
    chosen = {names[at]: names[at] for at in source.take.any_rows(len(names))}
    found, losses = readable(lambda name: _read(source, folder, masks, name), chosen)
    if not found:
        raise DataError(f"no image in {str(folder)!r} has a usable mask{first_loss(losses)}")
    one_size(source, (tuple(each.shape) for each in found.values()))
    y = torch.cat([encode_map(each[None], tuple(each.shape)) for each in found.values()])
    classes = class_names(source.classes) or _usual(source, masks, y)
    if classes and (top := int(y.max())) >= len(classes):
        raise DataError(f"the masks hold the class {top}, but there are {len(classes)} classes: correct classes")
    files, facts = {name: folder / name for name in found}, {"left_out": tuple(losses), "numbered": False}
    return picture_source(source, files, y, classes, target="map", **facts)


def _usual(source: MapOptions, masks: Path, y: Tensor) -> tuple[str, ...]:
    if source.trimap:
        return ("background", "object")
    return ("background", *VOC) if masks.name == "SegmentationClass" and int(y.max()) <= len(VOC) else ()


def _place(folder: Path, named: str | None, usual: Sequence[str]) -> Path | None:
    """The folder that is named, in the data or elsewhere, or else the first of the usual ones that exists."""
    if named is not None:
        return folder / named if (folder / named).is_dir() else Path(named)
    return next((folder / name for name in usual if (folder / name).is_dir()), None)


def _read(source: MapOptions, images: Path, masks: Path, name: str) -> Tensor:
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
