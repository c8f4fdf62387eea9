"""What every file of annotations gives: images with their objects; a reason instead where an object cannot be used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlab.data.images import IMAGES
from rlab.errors import DataError
from rlab.storage.names import inside

Box = tuple[float, float, float, float]  # x1, y1, x2, y2
CROWD, DIFFICULT = "is a crowd", "is marked as difficult"
BAD_NUMBERS, NO_AREA = "has a box that is not four finite numbers", "has a box without area"


@dataclass(frozen=True)
class Thing:
    """One object of an image, or the reason why it cannot be used."""

    label: str
    box: Box = (0.0, 0.0, 0.0, 0.0)
    fault: str = ""

    @property
    def area(self) -> float:
        x1, y1, x2, y2 = self.box
        return (x2 - x1) * (y2 - y1)


@dataclass(frozen=True)
class Picture:
    """An image file, its name in the data, and its objects."""

    file: Path
    name: str
    things: tuple[Thing, ...]
    size: tuple[int, int] | None = None  # (height, width) that the annotations declare
    fractions: bool = False  # whether boxes are fractions of the image instead of pixels


@dataclass(frozen=True)
class Annotations:
    """Everything that one data set says; `classes` are in the order of their numbers, and empty if only names are known."""

    pictures: tuple[Picture, ...]
    classes: tuple[str, ...] = ()


def thing(label: str, numbers: Sequence[object], fault: str = "", first: int = 0) -> Thing:
    """An object with the box x1, y1, x2, y2; numbers may come as text. `first` is 1 where x2 and y2 are the last pixels of the
    object, counted from 1."""
    try:
        x1, y1, x2, y2 = (float(str(number)) for number in numbers)
    except ValueError:
        return Thing(label, fault=fault or BAD_NUMBERS)
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        return Thing(label, fault=fault or BAD_NUMBERS)
    x1, y1 = (low - first if low >= first else low for low in (x1, y1))
    if not (x2 > x1 and y2 > y1):
        return Thing(label, fault=fault or NO_AREA)
    return Thing(label, (x1, y1, x2, y2), fault)


def find_image(folders: Sequence[Path], name: str, where: str) -> Path | None:
    """The image that an annotation names, in the first of the folders that holds it; None if it is missing."""
    if not name:
        raise DataError(f"an image of {where!r} has no file name: add it")
    paths = (inside(folder, name) for folder in folders if folder.is_dir())
    return next((path for path in paths if path.is_file()), None)


def with_stem(folder: Path, stem: str) -> Path | None:
    """The image `stem` with any of the usual endings; None if it is missing."""
    paths = (inside(folder, stem + each) for ending in IMAGES for each in (ending, ending.upper()))
    return next((path for path in paths if path.is_file()), None)
