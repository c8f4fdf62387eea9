"""Read YOLO folders: images in `images`, one text file per image in `labels`, class names in a YAML or text file.

A line of a text file is a class number and the centre, width and height of a box, or the corners of a polygon, all as fractions
of the image. Key points may follow the box if the YAML file declares them: `kpt_shape: [17, 3]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlab.data.annotated.pictures import BAD_NUMBERS, Annotations, Picture, Thing, thing
from rlab.data.files import files_below
from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.storage.names import inside
from rlab.storage.outside import parse_yaml, read_lines, read_text, short

NAMES = ("classes.txt", "obj.names", "labels/classes.txt")


def is_yolo(folder: Path) -> bool:
    """Whether images in `images` (or `<split>/images`) have text files in `labels` beside it."""
    places = [folder, *(folder / name for name in ("train", "valid", "val", "test"))]
    return any((place / "images").is_dir() and any((place / "labels").rglob("*.txt")) for place in places)


def read_yolo(folder: Path, split: str | None = None) -> Annotations:
    """Read all images, or those of a split: `images/<split>` with `labels/<split>`, or `<split>/images` with its `labels`."""
    images, labels = _places(folder, split)
    declared = _declared(folder)
    classes, points = _classes(folder, declared), _key_points(declared)
    names = files_below(images, IMAGES, "images")
    texts = [(labels / name).with_suffix(".txt") for name in names]
    lines = [read_lines(text) if text.is_file() else [] for text in texts]
    if points is None:
        _refuse_points([len(line.split()) - 1 for each in lines for line in each])
    things = [tuple(_thing(line, classes, points or 0) for line in each) for each in lines]
    pictures = [Picture(images / name, name, own, fractions=True) for name, own in zip(names, things, strict=True)]
    return Annotations(tuple(pictures), classes)


def _places(folder: Path, split: str | None) -> tuple[Path, Path]:
    for name in ("",) if split is None else (split, f"{split}id" if split == "val" else split):
        for pair in (Path("images", name), Path("labels", name)), (Path(name, "images"), Path(name, "labels")):
            images, labels = (inside(folder, place.as_posix()) for place in pair)
            if images.is_dir() and labels.is_dir():
                return images, labels
    missing = f"has no split {split!r}" if split is not None else "has no folders images and labels"
    raise OptionError(f"{str(folder)!r} {missing}: expected images/{split or ''} and labels/{split or ''}")


def _declared(folder: Path) -> dict[str, Any]:
    """The first YAML file with names of classes or the shape of key points."""
    for path in sorted((*folder.glob("*.yaml"), *folder.glob("*.yml"))):
        content = parse_yaml(read_text(path, most=2**20))
        if isinstance(content, dict) and content.keys() & {"names", "kpt_shape"}:
            return content
    return {}


def _key_points(declared: dict[str, Any]) -> int | None:
    """How many numbers of key points follow each box; None if that is not declared."""
    shape = declared.get("kpt_shape")
    if shape is None:
        return None
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(type(length) is int and length >= 0 for length in shape)
    ):
        raise DataError(f"expected kpt_shape as the numbers of points and of values for each, got {short(shape)}")
    return int(shape[0] * shape[1])


def _refuse_points(counts: list[int]) -> None:
    """Refuse objects that all have as many numbers, as key points do and polygons hardly do; eight are turned boxes."""
    longer = [count for count in counts if count > 5]
    if len(longer) > 1 and len(set(longer)) == 1 and longer[0] > 8:
        points = f"{(longer[0] - 4) // 2}, 2" if longer[0] % 2 == 0 else f"{(longer[0] - 4) // 3}, 3"
        raise DataError(
            f"every object has {longer[0]} numbers, which may be the corners of a polygon or a box with key points: write "
            f"kpt_shape: [{points}] for key points, or kpt_shape: [0, 2] for polygons, into the YAML file of the data"
        )


def _classes(folder: Path, declared: dict[str, Any]) -> tuple[str, ...]:
    names = declared.get("names")
    if isinstance(names, dict) and all(isinstance(key, int) for key in names):
        names = [names.get(number, str(number)) for number in range(max(names, default=-1) + 1)]
    if isinstance(names, list):
        return tuple(map(str, names))
    for name in NAMES:
        if (folder / name).is_file():
            return tuple(read_lines(folder / name))
    return ()


def _thing(line: str, classes: tuple[str, ...], points: int = 0) -> Thing:
    """An object; a box may have a confidence or `points` numbers behind it."""
    number, *values = line.split()
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
        return thing(label, (x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    if points or len(numbers) < 6 or len(numbers) % 2:
        return Thing(label, fault=BAD_NUMBERS)
    across, down = numbers[::2], numbers[1::2]
    return thing(label, (min(across), min(down), max(across), max(down)))
