"""Images with boxes (COCO, Pascal VOC, YOLO) and with masks; the same scene written in every format."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rlab.data.annotated.files import parse_xml
from rlab.data.load import load
from rlab.errors import DataError, InputError, OptionError
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.maps import decode_map

CLASSES = ("cat", "dog")
HEIGHT, WIDTH = 20, 40
# name -> (class, x1, y1, x2, y2); the first image has two objects, the third none
SCENE: dict[str, list[tuple[str, int, int, int, int]]] = {
    "a.png": [("dog", 12, 2, 20, 10), ("cat", 22, 4, 26, 8)],
    "b.png": [("cat", 10, 0, 30, 20)],
    "c.png": [],
}


def draw_scene(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in SCENE:
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)).save(folder / name)


def write_coco(folder: Path, **changes: object) -> Path:
    draw_scene(folder / "images")
    images = [{"id": i, "file_name": name, "height": HEIGHT, "width": WIDTH} for i, name in enumerate(SCENE)]
    rows = [
        {"image_id": i, "category_id": {"cat": 17, "dog": 18}[label], "bbox": [x1, y1, x2 - x1, y2 - y1], "iscrowd": 0}
        for i, things in enumerate(SCENE.values())
        for label, x1, y1, x2, y2 in things
    ]
    categories = [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}]
    content = {"images": images, "annotations": rows, "categories": categories} | changes
    (folder / "annotations").mkdir(exist_ok=True)
    path = folder / "annotations" / "instances.json"
    path.write_text(json.dumps(content))
    return path


def xml(name: str, things: list[tuple[str, int, int, int, int]], extra: str = "") -> str:
    parts = [
        f"<object><name>{label}</name>{extra}<bndbox><xmin>{a + 1}</xmin><ymin>{b + 1}</ymin><xmax>{c}</xmax><ymax>{d}</ymax>"
        "</bndbox>"
        "</object>"
        for label, a, b, c, d in things
    ]
    size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
    return f"<annotation><filename>{name}</filename>{size}{''.join(parts)}</annotation>"


def write_voc(folder: Path) -> Path:
    draw_scene(folder / "JPEGImages")
    (folder / "Annotations").mkdir()
    for name, things in SCENE.items():
        (folder / "Annotations" / name).with_suffix(".xml").write_text(xml(name, things))
    return folder


def write_yolo(folder: Path) -> Path:
    draw_scene(folder / "images" / "val")
    (folder / "labels" / "val").mkdir(parents=True)
    (folder / "data.yaml").write_text("names:\n  0: cat\n  1: dog\n")
    for name, things in SCENE.items():
        lines = [
            f"{CLASSES.index(k)} {(a + c) / 2 / WIDTH} {(b + d) / 2 / HEIGHT} {(c - a) / WIDTH} {(d - b) / HEIGHT}"
            for k, a, b, c, d in things
        ]
        if lines:
            (folder / "labels" / "val" / name).with_suffix(".txt").write_text("\n".join(lines))
    return folder


WRITERS = {"coco": write_coco, "voc": write_voc, "yolo": write_yolo}


def things(batch) -> list[list[tuple[str, Any]]]:
    """The objects of each sample, by class name."""
    found = TargetBoxes.decode(batch.y)
    return [
        [(batch.classes[k], box.tolist()) for k, box in zip(label.tolist(), xyxy, strict=True) if k >= 0]
        for label, xyxy in zip(found.label, found.xyxy, strict=True)
    ]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_gives_the_same_samples(tmp_path, kind):
    WRITERS[kind](tmp_path)
    batch = load(tmp_path, classes=CLASSES)
    assert (batch.target, batch.shape, batch.numbered) == ("boxes", (3, HEIGHT, WIDTH), False)
    assert [Path(name).name for name in batch.ids] == ["a.png#1", "a.png#2", "b.png#1"]
    expected: Any = [[(label, [float(v) for v in box])] for rows in SCENE.values() for label, *box in rows]
    assert [[(k, pytest.approx(box, abs=1e-4))] for ((k, box),) in things(batch)] == expected
    assert [reason for _, reason in batch.left_out] == ["shows no object"]
    assert torch.equal(batch.x, load(tmp_path, classes=CLASSES, stream=True)[:].x)


@pytest.mark.parametrize(
    ("objects", "ids", "counts"),
    [
        ("each", ["a.png#1", "a.png#2", "b.png#1"], [1, 1, 1]),
        ("largest", ["a.png#1", "b.png#1"], [1, 1]),
        ("all", ["a.png", "b.png"], [2, 1]),
    ],
)
def test_one_sample_for_each_object_or_image(tmp_path, objects, ids, counts):
    batch = load(write_coco(tmp_path), objects=objects)
    assert (list(batch.ids), [len(each) for each in things(batch)]) == (ids, counts)
    assert batch.classes == CLASSES  # in the order of the category numbers


@pytest.mark.parametrize(
    ("resize", "first", "last"),
    [
        ("stretch", [12 / 4, 2 / 2, 20 / 4, 10 / 2], [10 / 4, 0, 30 / 4, 10]),
        ("pad", [12 / 4, 2 / 4 + 2, 20 / 4, 10 / 4 + 2], [10 / 4, 2, 30 / 4, 7]),
        ("crop", [(12 - 10) / 2, 1, 5, 5], [0, 0, 10, 10]),
    ],
)
def test_boxes_move_with_the_image(tmp_path, resize, first, last):
    batch = load(write_coco(tmp_path), size=10, resize=resize)
    assert batch.shape == (3, 10, 10)
    assert (things(batch)[0][0][1], things(batch)[-1][0][1]) == (pytest.approx(first), pytest.approx(last))


def test_a_bright_object_stays_in_its_box(tmp_path):
    """The pixels themselves say where the object went, for every way to resize."""
    pixels = np.zeros((30, 50, 3), np.uint8)
    pixels[8:22, 14:30] = 255
    write_coco(tmp_path)
    Image.fromarray(pixels).save(tmp_path / "images" / "d.png")
    path = write_coco(
        tmp_path,
        images=[{"id": 1, "file_name": "d.png"}],
        annotations=[{"image_id": 1, "category_id": 17, "bbox": [14, 8, 16, 14]}],
    )
    for resize in ("crop", "stretch", "pad"):
        batch = load(path, size=(60, 80), resize=resize)
        x1, y1, x2, y2 = (round(v) for v in things(batch)[0][0][1])
        bright = batch.x[0].mean(0) > 0.7
        rows, columns = (bright.any(axis).nonzero().flatten() for axis in (1, 0))
        seen = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        assert np.allclose([int(v) for v in seen], (x1, y1, x2, y2), atol=1)


def test_what_cannot_be_used_is_counted(tmp_path):
    path = write_coco(tmp_path)
    content = json.loads(path.read_text())
    row = content["annotations"][0]
    for change in (
        {"iscrowd": 1},
        {"bbox": [1, 1, 0, 3]},
        {"bbox": [1, float("nan"), 2, 3]},
        {"bbox": "x"},
        {"bbox": [90, 90, 5, 5]},
    ):
        content["annotations"].append(row | change)
    content["images"].append({"id": 7, "file_name": "gone.png"})
    content["images"].append({"id": 8, "file_name": "other.png", "height": 3, "width": 3})
    content["images"].append({"id": 9, "file_name": "broken.png"})
    for number in (8, 9):
        content["annotations"].append(row | {"image_id": number})
    Image.new("RGB", (9, 9)).save(tmp_path / "images" / "other.png")
    (tmp_path / "images" / "broken.png").write_bytes(b"no image")
    path.write_text(json.dumps(content))
    batch = load(path)
    assert len(batch) == 3
    reasons = Counter(reason for _, reason in batch.left_out)
    assert reasons == {
        "is a crowd": 1, "has a box without area": 1, "has a box that is not four finite numbers": 2, "is missing": 1,
        "lies outside the image, or outside its crop": 1, "shows no object": 1, "is not an image": 1,
        "has 9 x 9 pixels, but its annotations say 3 x 3": 1,
    }  # fmt: skip


def test_difficult_objects_and_splits_of_voc(tmp_path):
    write_voc(tmp_path)
    (tmp_path / "Annotations" / "b.xml").write_text(xml("b.png", SCENE["b.png"], "<difficult>1</difficult>"))
    batch = load(tmp_path)
    assert (len(batch), len(batch.classes)) == (2, 20)
    assert ("b.png#1", "is marked as difficult") in batch.left_out
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "val.txt").write_text("a 1\n")
    assert {name[0] for name in load(tmp_path, split="val").ids} == {"a"}
    with pytest.raises(OptionError, match="has no split 'test'"):
        load(tmp_path, split="test")


def test_a_voc_object_of_one_pixel_and_coordinates_from_zero(tmp_path):
    write_voc(tmp_path)
    objects = [("dog", 4, 6, 5, 7), ("cat", -1, -1, 9, 9)]  # the second is written as 0, 0, 9, 9
    (tmp_path / "Annotations" / "c.xml").write_text(xml("c.png", objects))
    batch = load(tmp_path, objects="all")
    assert things(batch)[batch.ids.index("c.png")] == [("dog", [4, 6, 5, 7]), ("cat", [0, 0, 9, 9])]


@pytest.mark.parametrize("values", [2, 3])
def test_key_points_of_yolo(tmp_path, values):
    write_yolo(tmp_path)
    lines = [f"1 0.5 0.5 0.25 0.2 {' '.join(['0.5'] * 4 * values)}\n"] * 2
    (tmp_path / "labels" / "val" / "c.txt").write_text("".join(lines))
    yaml = tmp_path / "data.yaml"
    with pytest.raises(DataError, match=r"kpt_shape: \[(4|6), (2|3)\]"):
        load(tmp_path, split="val")
    yaml.write_text(f"{yaml.read_text()}kpt_shape: [4, {values}]\n")
    assert things(load(tmp_path, split="val"))[-1] == [("dog", pytest.approx([15, 8, 25, 12]))]
    yaml.write_text(yaml.read_text().replace("[4,", "[3,"))
    assert len(load(tmp_path, split="val").left_out) == 2


def test_polygons_and_bad_lines_of_yolo(tmp_path):
    write_yolo(tmp_path)
    (tmp_path / "labels" / "val" / "c.txt").write_text("1 0.25 0.1 0.5 0.2 0.3 0.9\nx 1 2\n0 0.5 0.5\n")
    batch = load(tmp_path, split="val")
    assert things(batch)[-1] == [("dog", pytest.approx([10, 2, 20, 18]))]
    assert len(batch.left_out) == 2
    (tmp_path / "labels" / "val" / "c.txt").write_text("9 0.5 0.5 0.1 0.1\n")
    with pytest.raises(DataError, match=r"expected class numbers in 0\.\.1, got 9"):
        load(tmp_path, split="val")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><annotation>&b;</annotation>", "declares a document type"),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><annotation/>", "declares a document type"),
        ("<annotation><object>", "cannot read .* as XML"),
    ],
)
def test_hostile_xml(tmp_path, text, sentence):
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(DataError, match=sentence):
        parse_xml(tmp_path / "a.xml")


@pytest.mark.slow
def test_deeply_nested_xml_is_read(tmp_path):
    (tmp_path / "a.xml").write_text("<a>" * 500_000 + "</a>" * 500_000)
    assert not list(parse_xml(tmp_path / "a.xml").iter("object"))


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "link.png", "a\0b.png"])
def test_no_file_outside_the_folder_is_opened(tmp_path, name):
    home = tmp_path / "data"
    home.mkdir()
    write_voc(home)
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "secret.png")
    (home / "JPEGImages" / "link.png").symlink_to(tmp_path / "secret.png")
    if "\0" not in name:  # XML cannot hold it
        (home / "Annotations" / "b.xml").write_text(xml(name, SCENE["b.png"]))
        with pytest.raises(InputError, match="outside the folder"):
            load(home)
    coco = write_coco(home, images=[{"id": 0, "file_name": name}])
    (home / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(InputError, match="outside the folder"):
        load(coco)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "cannot read .* as JSON"),
        ("[" * 100_000, "cannot read .* as JSON"),
        ("[1]", "expected a COCO file with lists named images"),
        ('{"images": [1], "annotations": [], "categories": []}', r"images\.0: .* expected a COCO file"),
        (
            '{"images": [{"id": "x"}], "annotations": [], "categories": []}',
            r"images\.0\.id: Input should be a valid integer",
        ),
        (
            '{"images": [], "annotations": [{"image_id": 1, "category_id": 3}], "categories": []}',
            "do not list 3, which it uses",
        ),
        ('{"images": [], "annotations": [], "categories": []}', "has an object that can be used"),
    ],
)
def test_bad_coco_files(tmp_path, text, sentence):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=sentence):
        load(tmp_path / "a.json")


def write_masks(folder: Path, mode: str = "P") -> None:
    draw_scene(folder / "images")
    (folder / "masks").mkdir()
    for name, rows in SCENE.items():
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        for label, x1, y1, x2, y2 in rows:
            mask[y1:y2, x1:x2] = 1 + CLASSES.index(label)
        mask[-1] = 255
        image = Image.fromarray(mask)
        if mode == "P":
            image.putpalette(list(range(256)) * 3)
        image.save(folder / "masks" / name)


@pytest.mark.parametrize("mode", ["P", "L"])
def test_masks_give_a_class_for_each_pixel(tmp_path, mode):
    write_masks(tmp_path, mode)
    batch = load(tmp_path, classes=("ground", *CLASSES))
    assert (batch.target, batch.ids, batch.y.dtype) == ("map", ("a.png", "b.png", "c.png"), torch.int64)
    found = decode_map(batch.y, (HEIGHT, WIDTH))
    assert found[0, 2:10, 12:20].unique().tolist() == [2]
    assert found[1, :-1, 10:30].unique().tolist() == [1]
    assert found[:, -1].unique().tolist() == [-1]
    assert found[2, :-1].unique().tolist() == [0]
    padded = load(tmp_path, size=40, resize="pad")
    assert decode_map(padded.y, (40, 40))[2, :, 0].tolist() == [-1] * 10 + [0] * 19 + [-1] * 11


def test_trimaps_and_losses_of_masks(tmp_path):
    draw_scene(tmp_path / "images")
    (tmp_path / "trimaps").mkdir()
    trimap = np.full((HEIGHT, WIDTH), 2, np.uint8)
    trimap[5:10, 5:10], trimap[4, 4:11] = 1, 3
    Image.fromarray(trimap).save(tmp_path / "trimaps" / "a.png")
    Image.fromarray(trimap[1:]).save(tmp_path / "trimaps" / "b.png")
    batch = load(tmp_path, target="map", trimap=True)
    (tmp_path / "labels.csv").write_text("image,kind\na.png,cat\n")  # the options of masks ask for masks all the same
    assert load(tmp_path, trimap=True).target == load(tmp_path, masks="trimaps").target == "map"
    found = decode_map(batch.y, (HEIGHT, WIDTH))[0]
    assert (found[5:10, 5:10] == 1).all()
    assert (found[4, 4:11] == -1).all()
    assert (found[11:] == 0).all()
    assert batch.classes == ("background", "object")
    assert dict(batch.left_out) == {"b.png": "has 20 x 40 pixels, but its mask has 19 x 40", "c.png": "has no mask"}
    Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / "trimaps" / "c.png")
    assert "has colours (RGB)" in dict(load(tmp_path, target="map", trimap=True).left_out)["c.png"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "map"}, "has no folder of masks"),
        ({"target": "boxes"}, "holds no boxes"),
        ({"target": "numbers"}, "there is no file"),
        ({"objects": "all"}, "the option 'objects' does not apply"),
    ],
)
def test_targets_that_are_not_there(tmp_path, options, sentence):
    draw_scene(tmp_path / "k")
    with pytest.raises(InputError, match=sentence):
        load(tmp_path, **options)


def test_other_files_beside_class_folders_change_nothing(tmp_path):
    draw_scene(tmp_path / "k")
    (tmp_path / "notes.json").write_text('{"images": 3}')
    assert load(tmp_path).target == "classes"
    write_coco(tmp_path)
    assert load(tmp_path).target == "boxes"
    assert load(tmp_path, target="classes").classes == ("images", "k")


def test_numbers_of_images(tmp_path):
    draw_scene(tmp_path)
    (tmp_path / "labels.csv").write_text("file,label,age\na.png,x,61.5\nb.png,y,7\nc.png,x,30\n")
    batch = load(tmp_path, target="numbers", label_column="age")
    assert (batch.target, batch.classes, batch.y.tolist()) == ("numbers", (), [[61.5], [7.0], [30.0]])
    (tmp_path / "labels.csv").write_text("file,age\na.png,61.5\nb.png,nan\nc.png,30\n")
    with pytest.raises(DataError, match=r"expected a finite number for every sample .* got 'nan'"):
        load(tmp_path, target="numbers")
