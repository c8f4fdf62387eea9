"""Load images with boxes, or with a class for each pixel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from torch import Tensor

from rlab.data.annotated.files import (
    VOC,
    Annotations,
    Box,
    Picture,
    Thing,
    coco_files,
    find_xml,
    listed_in,
    read_coco,
    read_coco_folder,
    read_voc,
    with_stem,
)
from rlab.data.annotated.yolo import is_yolo, read_yolo
from rlab.data.fields import Labels, Pictures, Resizing, Size, Split, check_room
from rlab.data.files import Place
from rlab.data.fitting import place
from rlab.data.images import IMAGES, look, picture_source
from rlab.data.labels import class_names, encode
from rlab.data.source import Loss, Source, Unreadable, first_loss, readable
from rlab.errors import DataError
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import IGNORED, encode_map

# What a folder with boxes may hold, and who reads it
READERS = ((is_yolo, read_yolo), (find_xml, read_voc), (coco_files, read_coco_folder))
VISIBLE = 0.5  # an object of which the crop leaves a smaller share is left out
ORIENTATION, SWAPPED = 274, (5, 6, 7, 8)  # an EXIF tag, and its values for which height and width are exchanged
IMAGE_FOLDERS = ("images", "JPEGImages", "image", "img")
MASK_FOLDERS = ("masks", "SegmentationClass", "mask", "labels", "trimaps", "annotations/trimaps", "annotations")
VOID = 255  # value of pixels without a class in a mask of 8 bits
TRIMAP = {1: 1, 2: 0}  # Oxford-IIIT Pet: object and background; the border, 3, is ignored


Objects = Literal["each", "largest", "all"]


class BoxOptions(Pictures):
    holds: ClassVar[tuple[Prediction, ...]] = ("boxes",)

    labels: Labels = None
    images: str | None = Field(None, description="boxes, maps: folder of the images (default: searched for)")
    objects: Objects | None = Field(
        None,
        description="boxes: a sample for each object (default), for the largest of each image, or for all together",
    )
    split: Split = None


def boxes(source: BoxOptions) -> Source:
    """Load images (b, channels, h, w) with boxes in pixels of the sample, from COCO JSON, Pascal VOC XML or YOLO text files.

    `labels` names a COCO file for the images of a folder. `objects` is each (a sample `name#2` for each object), largest or all.
    Crowds, difficult objects, and objects that a crop cuts off are left out and counted.
    """
    known = read_annotations(source)
    shots = {shot.name: shot for picture in known.pictures for shot in _samples(picture, source.objects or "each")}
    losses = [loss for picture in known.pictures for loss in _losses(picture)]
    if not shots:
        raise DataError(f"no image of {source.path!r} has an object that can be used{first_loss(losses)}")
    names, every = list(shots), [",".join(sorted({each.label for each in shot.things})) for shot in shots.values()]
    wanted = {names[i]: shots[names[i]] for i in source.take.rows(every)}
    placed, further = readable(lambda shot: _placed(shot, source.size, source.resize or "crop"), wanted)
    kept, losses = list(placed.values()), losses + further
    if not kept:
        raise DataError(f"no object of {source.path!r} can be used{first_loss(losses)}")
    one_size(source, (shot.size or () for shot in kept))
    source = source.model_copy(update={"classes": source.classes or known.classes or None})
    labels = [each.label for shot in kept for each in shot.things]
    others = [each.label for shot in shots.values() for each in shot.things]
    numbers, classes = encode(labels, source.classes, others)
    parts = numbers.split([len(shot.things) for shot in kept])
    corners = [torch.tensor([each.box for each in shot.things]) for shot in kept]
    y = TargetBoxes.of(list(zip(corners, parts, strict=True))).encode()
    files = {shot.name: shot.file for shot in kept}
    return picture_source(source, files, y, classes, target="boxes", left_out=tuple(losses))


def one_size(source: Pictures, sizes: Iterable[tuple[int, ...]]) -> None:
    """Refuse images of several sizes unless the options give one."""
    if source.size is None and len(different := sorted(set(sizes))) > 1:
        got = f"{different[0]} and {different[1]}"
        raise DataError(f"expected images of one size, got {got}: pass a size (--size 224)")


def has_boxes(place: Place) -> bool:
    """Whether the path is a COCO file or a folder with annotations of one of the three kinds."""
    path = place.path
    if not path.is_dir():
        return path.suffix.lower() == ".json"
    return any(holds(path) for holds, _ in READERS)


def read_annotations(source: BoxOptions) -> Annotations:
    """Read the annotations of whichever kind they are."""
    path, images = source.location, None if source.images is None else Path(source.images)
    if source.labels is not None and source.labels.endswith(".json"):
        return read_coco(Path(source.labels), images or (path if path.is_dir() else None))
    if path.is_file():
        return read_coco(path, images)
    for holds, read in READERS:
        if holds(path):
            return read(path, source.split, images)
    expected = "a COCO file (labels=FILE.json), Annotations/*.xml, or labels/*.txt beside images"
    raise DataError(f"the folder {source.path!r} holds no boxes: expected {expected}")


def _samples(picture: Picture, objects: Objects) -> list[Picture]:
    """The samples of one image, each with some of its objects."""
    usable = [(number, each) for number, each in enumerate(picture.things, 1) if not each.fault]
    if not usable or not picture.file.is_file():
        return []
    if objects == "all":
        return [replace(picture, things=tuple(each for _, each in usable))]
    chosen = usable if objects == "each" else [max(usable, key=lambda pair: pair[1].area)]
    return [replace(picture, things=(each,), name=f"{picture.name}#{number}") for number, each in chosen]


def _losses(picture: Picture) -> list[Loss]:
    """What cannot be used of one image, and why."""
    if not picture.file.is_file():
        return [(picture.name, "is missing")]
    if not picture.things:
        return [(picture.name, "shows no object")]
    return [(f"{picture.name}#{number}", each.fault) for number, each in enumerate(picture.things, 1) if each.fault]


def _placed(shot: Picture, size: Size | None, resizing: Resizing) -> Picture:
    """The sample with its boxes in pixels of the resized image."""
    actual = upright_size(shot.file)
    if shot.size not in (None, actual):
        sizes = "has {} x {} pixels, but its annotations say {} x {}"
        raise Unreadable(sizes.format(*actual, *shot.size or ()))
    (height, width), put, things = actual, place(actual, size, resizing), []
    for each in shot.things:
        x1, y1, x2, y2 = each.box
        whole = (x1 * width, y1 * height, x2 * width, y2 * height) if shot.fractions else each.box
        box = _visible(put.box(whole), put.size)
        if box is not None:
            things.append(Thing(each.label, box))
    if not things:
        raise Unreadable("lies outside the image, or outside its crop")
    return replace(shot, things=tuple(things), size=put.size)


def _visible(box: Box, size: tuple[int, int]) -> Box | None:
    """The part of a box inside the picture (height, width); None if that is less than `VISIBLE` of it."""
    x1, x2 = (min(max(x, 0.0), size[1]) for x in box[::2])
    y1, y2 = (min(max(y, 0.0), size[0]) for y in box[1::2])
    inside = max(x2 - x1, 0) * max(y2 - y1, 0)
    return (x1, y1, x2, y2) if inside >= VISIBLE * (box[2] - box[0]) * (box[3] - box[1]) else None


def upright_size(file: Path) -> tuple[int, int]:
    """Height and width of an upright image, from its header."""

    def size(image: Image.Image) -> tuple[int, int]:
        turned = image.getexif().get(ORIENTATION) in SWAPPED
        return (image.width, image.height) if turned else (image.height, image.width)

    return look(file, size)


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
