"""Read Pascal VOC: one XML per image in `Annotations`, images in `JPEGImages`, lists of names in `ImageSets/Main`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rlab.data.annotated.pictures import DIFFICULT, Annotations, Picture, Thing, find_image, thing, with_stem
from rlab.errors import DataError, OptionError
from rlab.storage.names import inside
from rlab.storage.outside import read_lines, regular

_NAMES = (
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep sofa train "
    "tvmonitor"
)
CLASSES = tuple(_NAMES.split())
MOST_XML = 2**22  # bytes
FOLDERS = ("Annotations", "annotations", "annotations/xmls", "xmls", "labels", ".")


def find_xml(folder: Path) -> Path | None:
    """The folder of the XML files; None if there is none."""
    return next((folder / name for name in FOLDERS if any((folder / name).glob("*.xml"))), None)


def read_voc(folder: Path, home: Path, split: str | None = None, images: Path | None = None) -> Annotations:
    """Read every XML in the folder `home`, or those that ImageSets/Main/<split>.txt lists."""
    listed = None if split is None else listed_in(folder, "Main", split)
    files = sorted(home.glob("*.xml")) if listed is None else [inside(home, f"{stem}.xml") for stem in listed]
    places = [images] if images is not None else [folder / "JPEGImages", folder / "images", home, folder]
    pictures = tuple(_picture(file, places) for file in files)
    found = {each.label for picture in pictures for each in picture.things}
    return Annotations(pictures, CLASSES if found <= set(CLASSES) else ())


def listed_in(folder: Path, kind: str, split: str) -> list[str]:
    """The names of the images of a split, from ImageSets/<kind>/<split>.txt."""
    path = inside(folder, f"ImageSets/{kind}/{split}.txt")
    if not path.is_file():
        raise OptionError(f"{str(folder)!r} has no split {split!r}: expected the file ImageSets/{kind}/{split}.txt")
    return [line.split()[0] for line in read_lines(path)]


def _picture(file: Path, places: Sequence[Path]) -> Picture:
    root = parse_xml(file)
    name = (root.findtext("filename") or "").strip()
    image = find_image(places, name, file.name) if name else None
    image = image or next((path for place in places if place.is_dir() and (path := with_stem(place, file.stem))), None)
    things = tuple(_thing(each) for each in root.iter("object"))
    path = image or places[0] / (name or file.stem)
    return Picture(path, path.name if image else name or file.stem, things, _size(root))


def _thing(each: ElementTree.Element) -> Thing:
    label, box = (each.findtext("name") or "").strip(), each.find("bndbox")
    if not label:
        return Thing("", fault="has no class name")
    numbers = [box.findtext(name) if box is not None else None for name in ("xmin", "ymin", "xmax", "ymax")]
    return thing(label, numbers, DIFFICULT if (each.findtext("difficult") or "0").strip() == "1" else "", first=1)


def _size(root: ElementTree.Element) -> tuple[int, int] | None:
    height, width = (root.findtext(f"size/{name}") or "" for name in ("height", "width"))
    return (
        (int(height), int(width)) if height.isdecimal() and width.isdecimal() and int(height) and int(width) else None
    )


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
