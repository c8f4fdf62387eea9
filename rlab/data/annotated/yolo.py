"""Read YOLO folders: images in `images`, one text file per image in `labels`, class names in a YAML or text file.

A line of a text file is a class number and the centre, width and height of a box, or the corners of a polygon, all as fractions
of the image.
"""

from __future__ import annotations

from pathlib import Path

from rlab.data.annotated.pictures import BAD_NUMBERS, Annotations, Picture, Thing, thing
from rlab.data.files import files_below
from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.storage.names import inside
from rlab.storage.outside import parse_yaml, read_lines, read_text

NAMES = ("classes.txt", "obj.names", "labels/classes.txt")


def is_yolo(folder: Path) -> bool:
    """Whether images in `images` (or `<split>/images`) have text files in `labels` beside it."""
    places = [folder, *(folder / name for name in ("train", "valid", "val", "test"))]
    return any((place / "images").is_dir() and any((place / "labels").rglob("*.txt")) for place in places)


def read_yolo(folder: Path, split: str | None = None) -> Annotations:
    """Read all images, or those of a split: `images/<split>` with `labels/<split>`, or `<split>/images` with its `labels`."""
    images, labels = _places(folder, split)
    classes = _classes(folder)
    pictures = []
    for name in files_below(images, IMAGES, "images"):
        text = (labels / name).with_suffix(".txt")
        things = tuple(_thing(line, classes) for line in (read_lines(text) if text.is_file() else ()))
        pictures.append(Picture(images / name, name, things, fractions=True))
    return Annotations(tuple(pictures), classes)


def _places(folder: Path, split: str | None) -> tuple[Path, Path]:
    for name in ("",) if split is None else (split, f"{split}id" if split == "val" else split):
        for pair in (Path("images", name), Path("labels", name)), (Path(name, "images"), Path(name, "labels")):
            images, labels = (inside(folder, place.as_posix()) for place in pair)
            if images.is_dir() and labels.is_dir():
                return images, labels
    missing = f"has no split {split!r}" if split is not None else "has no folders images and labels"
    raise OptionError(f"{str(folder)!r} {missing}: expected images/{split or ''} and labels/{split or ''}")


def _classes(folder: Path) -> tuple[str, ...]:
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        content = parse_yaml(read_text(path, most=2**20))
        names = content.get("names") if isinstance(content, dict) else None
        if isinstance(names, dict) and all(isinstance(key, int) for key in names):
            names = [names.get(number, str(number)) for number in range(max(names, default=-1) + 1)]
        if isinstance(names, list):
            return tuple(map(str, names))
    for name in NAMES:
        if (folder / name).is_file():
            return tuple(read_lines(folder / name))
    return ()


def _thing(line: str, classes: tuple[str, ...]) -> Thing:
    number, *values = line.split()
    if not number.isdigit():
        return Thing("", fault=f"starts with {number[:20]!r} instead of a class number")
    if classes and int(number) >= len(classes):
        raise DataError(f"expected class numbers in 0..{len(classes) - 1}, got {number[:20]}: correct labels or names")
    label = classes[int(number)] if classes else str(int(number))
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return Thing(label, fault=BAD_NUMBERS)
    if len(numbers) in (4, 5):  # a fifth number is a confidence
        x, y, width, height = numbers[:4]
        return thing(label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    if len(numbers) < 6 or len(numbers) % 2:
        return Thing(label, fault=BAD_NUMBERS)
    across, down = numbers[::2], numbers[1::2]
    return thing(label, (min(across), min(down), max(across), max(down)))
