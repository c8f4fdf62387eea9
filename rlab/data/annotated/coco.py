"""Read a COCO file: one JSON with images, annotations and categories (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlab.data.annotated.pictures import CROWD, Annotations, Picture, Thing, find_image, thing
from rlab.errors import DataError, OptionError
from rlab.storage.outside import read_text, short

LISTS = ("images", "annotations", "categories")
FORMAT = "expected a COCO file with lists named images, annotations and categories"


def coco_files(folder: Path) -> list[Path]:
    """The COCO files in a folder, in its `annotations`, and in the folders of splits that Roboflow writes."""
    patterns = ("*.json", "annotations/*.json", "*/*.coco.json")
    return [path for pattern in patterns for path in sorted(folder.glob(pattern)) if _looks_like(path)]


def find_json(folder: Path, split: str | None = None) -> Path | None:
    """The COCO file of a folder, with `split` in its path if that is given; None if there is none."""
    found = coco_files(folder)
    if split is not None:
        found = [path for path in found if split in path.relative_to(folder).as_posix()]
    if len(found) > 1:
        names = ", ".join(path.relative_to(folder).as_posix() for path in found[:5])
        raise OptionError(f"{str(folder)!r} holds several COCO files ({names}): pass one as labels, or a split")
    return found[0] if found else None


def _looks_like(path: Path) -> bool:
    """Whether the file names two of the lists near its start or end, without reading all of it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(2**16)
        file.seek(max(0, path.stat().st_size - 2**16))
        ends = start + file.read()
    return sum(f'"{name}"'.encode() in ends for name in LISTS) > 1


def read_coco(path: Path, images: Path | None = None) -> Annotations:
    """Read the file. Images lie in `images`, or beside the file, in `images`, or in the folder that the file is named after."""
    content = _parse(path)
    categories = sorted((_whole(row, "id", path), str(row.get("name", row.get("id")))) for row in content["categories"])
    names, home = dict(categories), path.parent.parent if path.parent.name == "annotations" else path.parent
    folders = [images] if images is not None else [home, home / "images", home / path.stem.rpartition("_")[2]]
    things: dict[int, list[Thing]] = {}
    for row in content["annotations"]:
        things.setdefault(_whole(row, "image_id", path), []).append(_thing(row, names, path))
    pictures = []
    for row in content["images"]:
        number, name = _whole(row, "id", path), str(row.get("file_name", ""))
        file = find_image(folders, name, path.name) or folders[0] / name
        pictures.append(Picture(file, name, tuple(things.get(number, ())), _size(row)))
    return Annotations(tuple(pictures), tuple(name for _, name in categories))


def _parse(path: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    try:
        content = json.loads(read_text(path, "COCO file"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DataError(f"cannot read {str(path)!r} as JSON ({reason}): {FORMAT}") from error
    for name in LISTS:
        rows = content.get(name) if isinstance(content, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise DataError(f"{path.name!r} has no list named {name}: {FORMAT}")
    return content


def _thing(row: Mapping[str, Any], names: Mapping[int, str], path: Path) -> Thing:
    label = names.get(_whole(row, "category_id", path))
    if label is None:
        raise DataError(f"the categories of {path.name!r} do not list {row['category_id']}, which it uses: add it")
    box = row.get("bbox")
    numbers = [n for n in box if isinstance(n, int | float)] if isinstance(box, list) and len(box) == 4 else []
    corners = (*numbers[:2], numbers[0] + numbers[2], numbers[1] + numbers[3]) if len(numbers) == 4 else ()
    return thing(label, corners, CROWD if row.get("iscrowd") else "")


def _whole(row: Mapping[str, Any], key: str, path: Path) -> int:
    value = row.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"expected an integer {key} in every row of {path.name!r}, got {short(value)}: {FORMAT}")
    return value


def _size(row: Mapping[str, Any]) -> tuple[int, int] | None:
    height, width = row.get("height"), row.get("width")
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None
