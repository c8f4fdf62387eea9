"""Read YOLO folders: images in `images`, one text file per image in `labels`, class names in a YAML or text file.

A line of a text file is a class number and the centre, width and height of a box, or the corners of a polygon, all as fractions
of the image. Key points may follow the box if the YAML file declares them: `kpt_shape: [17, 3]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt

from rlab.data.annotated.files import BAD_NUMBERS, Annotations, Picture, Thing
from rlab.data.files import Place
from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.storage.config import check
from rlab.storage.names import inside
from rlab.storage.outside import parse_yaml, read_lines, read_text

NAMES = ("classes.txt", "obj.names", "labels/classes.txt")


class Declared(BaseModel):
    """What the YAML file of the data says of their classes and key points."""

    names: list[Any] | dict[int, Any] | None = None
    kpt_shape: tuple[NonNegativeInt, NonNegativeInt] | None = None  # points, and values of each


def is_yolo(folder: Path) -> bool:
    """Whether images in `images` (or `<split>/images`) have text files in `labels` beside it."""
    places = [folder, *(folder / name for name in ("train", "valid", "val", "test"))]
    return any((place / "images").is_dir() and any((place / "labels").rglob("*.txt")) for place in places)


def read_yolo(folder: Path, split: str | None = None, _: Path | None = None) -> Annotations:
    """Read all images, or those of a split: `images/<split>` with `labels/<split>`, or `<split>/images` with its `labels`."""
    images, labels = _folders(folder, split)
    declared = _declared(folder)
    classes, shape = _classes(folder, declared.names), declared.kpt_shape
    points = None if shape is None else shape[0] * shape[1]
    names = Place(images).files(IMAGES, "images")
    texts = [(labels / name).with_suffix(".txt") for name in names]
    lines = [[line.split() for line in read_lines(text)] if text.is_file() else [] for text in texts]
    longer = [len(line) - 1 for each in lines for line in each if len(line) > 6]
    if points is None and len(longer) > 1 and len(set(longer)) == 1 and (count := longer[0]) > 8:
        # all have as many numbers, as key points do and polygons hardly do; eight are turned boxes
        likely = f"{(count - 4) // 2}, 2" if count % 2 == 0 else f"{(count - 4) // 3}, 3"
        raise DataError(
            f"every object has {count} numbers, which may be the corners of a polygon or a box with key points: write "
            f"kpt_shape: [{likely}] for key points, or kpt_shape: [0, 2] for polygons, into the YAML file of the data"
        )
    things = [tuple(_thing(line, classes, points or 0) for line in each) for each in lines]
    pictures = [Picture(images / name, name, own, fractions=True) for name, own in zip(names, things, strict=True)]
    return Annotations(tuple(pictures), classes)


def _folders(folder: Path, split: str | None) -> tuple[Path, Path]:
    for name in ("",) if split is None else (split, f"{split}id" if split == "val" else split):
        for pair in (Path("images", name), Path("labels", name)), (Path(name, "images"), Path(name, "labels")):
            images, labels = (inside(folder, place.as_posix()) for place in pair)
            if images.is_dir() and labels.is_dir():
                return images, labels
    missing = f"has no split {split!r}" if split is not None else "has no folders images and labels"
    raise OptionError(f"{str(folder)!r} {missing}: expected images/{split or ''} and labels/{split or ''}")


def _declared(folder: Path) -> Declared:
    """The first YAML file with names of classes or the shape of key points."""
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        content = parse_yaml(read_text(path, most=2**20))
        if isinstance(content, dict) and content.keys() & {"names", "kpt_shape"}:
            return check(Declared, content, path.name)
    return Declared()


def _classes(folder: Path, names: list[Any] | dict[int, Any] | None) -> tuple[str, ...]:
    if isinstance(names, dict):
        names = [names.get(number, number) for number in range(max(names, default=-1) + 1)]
    usual = (folder / name for name in NAMES)
    found = next((read_lines(path) for path in usual if path.is_file()), []) if names is None else names
    return tuple(map(str, found))


def _thing(words: list[str], classes: tuple[str, ...], points: int) -> Thing:
    """An object; a box may have a confidence or `points` numbers behind it."""
    number, *values = words
    if not number.isdecimal():
        return Thing("", fault=f"starts with {number[:20]!r} instead of a class number")
    if classes and int(number) >= len(classes):
        raise DataError(f"expected class numbers in 0..{len(classes) - 1}, got {number[:20]}: correct labels or names")
    label = classes[int(number)] if classes else str(int(number))
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return Thing(label, fault=BAD_NUMBERS)
    if len(numbers) in (4, 5, 4 + points):
        x, y, width, height = numbers[:4]
        return Thing.at(label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    if points or len(numbers) < 6 or len(numbers) % 2:
        return Thing(label, fault=BAD_NUMBERS)
    across, down = numbers[::2], numbers[1::2]
    return Thing.at(label, (min(across), min(down), max(across), max(down)))
