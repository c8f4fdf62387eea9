"""What every kind of annotations gives, images with their objects, read from COCO (one JSON) and Pascal VOC (one XML per image)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import BaseModel, StrictInt, ValidationError

from rlab.data.images import IMAGES
from rlab.errors import DataError, OptionError
from rlab.storage.names import inside
from rlab.storage.outside import read_lines, read_text, regular

Box = tuple[float, float, float, float]  # x1, y1, x2, y2
BAD_NUMBERS, NO_AREA = "has a box that is not four finite numbers", "has a box without area"
_VOC = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep sofa train "
    "tvmonitor"
)
VOC = tuple(_VOC.split())
MOST_XML = 2**22  # bytes
XML_FOLDERS = ("Annotations", "annotations", "annotations/xmls", "xmls", "labels", ".")
LISTS = ("images", "annotations", "categories")


@dataclass(frozen=True)
class Thing:
    """One object of an image, or the reason why it cannot be used."""

    label: str
    box: Box = (0.0, 0.0, 0.0, 0.0)
    fault: str = ""

    @classmethod
    def at(cls, label: str, numbers: Iterable[object], fault: str = "", first: int = 0) -> Thing:
        """An object with the box x1, y1, x2, y2; numbers may come as text. `first` is 1 where x2 and y2 are the last pixels of
        the object, counted from 1."""
        try:
            x1, y1, x2, y2 = (float(str(number)) for number in numbers)
        except ValueError:
            return cls(label, fault=fault or BAD_NUMBERS)
        if not math.isfinite(x1 + y1 + x2 + y2):
            return cls(label, fault=fault or BAD_NUMBERS)
        x1, y1 = (low - first if low >= first else low for low in (x1, y1))
        return cls(label, (x1, y1, x2, y2), fault or ("" if x2 > x1 and y2 > y1 else NO_AREA))

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


class _Image(BaseModel):
    id: StrictInt
    file_name: str = ""
    height: Any = None
    width: Any = None


class _Object(BaseModel):
    image_id: StrictInt
    category_id: StrictInt
    bbox: Any = None
    iscrowd: Any = 0


class _Category(BaseModel):
    id: StrictInt
    name: str = ""


class _Coco(BaseModel):
    """https://cocodataset.org/#format-data"""

    images: list[_Image]
    annotations: list[_Object]
    categories: list[_Category]


def coco_files(folder: Path) -> list[Path]:
    """The COCO files in a folder, in its `annotations`, and in the folders of splits that Roboflow writes."""
    patterns = ("*.json", "annotations/*.json", "*/*.coco.json")
    return [path for pattern in patterns for path in sorted(folder.glob(pattern)) if _looks_like_coco(path)]


def read_coco_folder(folder: Path, split: str | None = None, images: Path | None = None) -> Annotations:
    """Read the COCO file of a folder, with `split` in its path if that is given."""
    names = [path.relative_to(folder).as_posix() for path in coco_files(folder)]
    chosen = [name for name in names if split is None or split in name]
    if len(chosen) != 1:
        several = f"holds several COCO files ({', '.join(chosen[:5])})" if chosen else f"has no split {split!r}"
        raise OptionError(f"{str(folder)!r} {several}: pass one as labels, or another split")
    return read_coco(folder / chosen[0], images)


def _looks_like_coco(path: Path) -> bool:
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
    try:
        content = _Coco.model_validate_json(read_text(path, "COCO file"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        wanted = "expected a COCO file with lists named images, annotations and categories"
        raise DataError(f"cannot read {str(path)!r} as JSON of COCO ({where}: {first['msg']}): {wanted}") from None
    names = {row.id: row.name or str(row.id) for row in sorted(content.categories, key=lambda row: row.id)}
    home = path.parent.parent if path.parent.name == "annotations" else path.parent
    folders = [images] if images is not None else [home, home / "images", home / path.stem.rpartition("_")[2]]
    things: dict[int, list[Thing]] = {}
    for row in content.annotations:
        if row.category_id not in names:
            raise DataError(f"the categories of {path.name!r} do not list {row.category_id}, which it uses: add it")
        box = row.bbox if isinstance(row.bbox, list) and all(isinstance(n, int | float) for n in row.bbox) else []
        corners = (*box[:2], box[0] + box[2], box[1] + box[3]) if len(box) == 4 else ()
        thing = Thing.at(names[row.category_id], corners, "is a crowd" if row.iscrowd else "")
        things.setdefault(row.image_id, []).append(thing)
    pictures = []
    for each in content.images:
        file = find_image(folders, each.file_name, path.name) or folders[0] / each.file_name
        size = (each.height, each.width) if isinstance(each.height, int) and isinstance(each.width, int) else None
        pictures.append(Picture(file, each.file_name, tuple(things.get(each.id, ())), size))
    return Annotations(tuple(pictures), tuple(names.values()))


def find_xml(folder: Path) -> Path | None:
    """The folder of the XML files; None if there is none."""
    return next((folder / name for name in XML_FOLDERS if any((folder / name).glob("*.xml"))), None)


def read_voc(folder: Path, split: str | None = None, images: Path | None = None) -> Annotations:
    """Read every XML, or those that ImageSets/Main/<split>.txt lists."""
    home = find_xml(folder) or folder
    listed = None if split is None else listed_in(folder, "Main", split)
    files = sorted(home.glob("*.xml")) if listed is None else [inside(home, f"{stem}.xml") for stem in listed]
    places = [images] if images is not None else [folder / "JPEGImages", folder / "images", home, folder]
    pictures = tuple(_voc_picture(file, [place for place in places if place.is_dir()] or places[:1]) for file in files)
    found = {each.label for picture in pictures for each in picture.things}
    return Annotations(pictures, VOC if found <= set(VOC) else ())


def listed_in(folder: Path, kind: str, split: str) -> list[str]:
    """The names of the images of a split, from ImageSets/<kind>/<split>.txt."""
    path = inside(folder, f"ImageSets/{kind}/{split}.txt")
    if not path.is_file():
        raise OptionError(f"{str(folder)!r} has no split {split!r}: expected the file ImageSets/{kind}/{split}.txt")
    return [line.split()[0] for line in read_lines(path)]


def _voc_picture(file: Path, places: Sequence[Path]) -> Picture:
    root = parse_xml(file)
    name = _text(root, "filename")
    image = find_image(places, name, file.name) if name else None
    image = image or next((path for place in places if (path := with_stem(place, file.stem))), None)
    height, width = _text(root, "size/height"), _text(root, "size/width")
    known = height.isdecimal() and width.isdecimal() and int(height) * int(width) > 0
    things = list[Thing]()
    for each in root.iter("object"):
        label, fault = _text(each, "name"), "is marked as difficult" if _text(each, "difficult") == "1" else ""
        numbers = [_text(each, f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        thing = Thing.at(label, numbers, fault, first=1)
        things.append(thing if label else Thing("", fault="has no class name"))
    path, size = image or places[0] / (name or file.stem), (int(height), int(width)) if known else None
    return Picture(path, image.name if image else name or file.stem, tuple(things), size)


def _text(parent: ElementTree.Element, path: str) -> str:
    return (parent.findtext(path) or "").strip()


def parse_xml(path: Path) -> ElementTree.Element:
    """Parse a small XML file without a document type."""
    if (size := regular(path)) > MOST_XML:
        raise DataError(f"{str(path)!r} has {size:,} bytes, more than {MOST_XML:,}: expected the objects of one image")
    content = path.read_bytes()
    if b"<!DOCTYPE" in content:  # its entities can fill the memory
        raise DataError(f"{str(path)!r} declares a document type or entities, which rlab does not read: remove them")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"cannot read {str(path)!r} as XML ({error}): correct or remove the file") from error
