"""Folders of images, and binary files of CIFAR-10."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rlab.data.load import load
from rlab.errors import DataError, InputError, OptionError

DRAW = np.random.default_rng(0)


def write(path, height=6, width=5, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = DRAW.integers(0, 256, (height, width, 3), np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    image.save(path)
    return np.asarray(image)


def test_flat_folder_with_a_table(tmp_path):
    pixels = [write(tmp_path / "photos" / name) for name in ("b.png", "a.png")]
    write(tmp_path / "photos" / ".hidden.png")
    (tmp_path / "labels.csv").write_text("file,label\na.png,dog\nb.png,cat\nc.png,ant\n")
    batch = load(tmp_path / "photos", labels=str(tmp_path / "labels.csv"))
    assert (batch.ids, batch.y.tolist(), batch.classes) == (("a.png", "b.png"), [2, 1], ("ant", "cat", "dog"))
    expected = torch.from_numpy(np.stack(pixels[::-1])).permute(0, 3, 1, 2) / 255
    assert torch.equal(batch.x, expected)


def test_table_in_the_folder_is_found(tmp_path):
    write(tmp_path / "a.jpg")
    (tmp_path / "labels.csv").write_text("image,imagenet_index\na.jpg,281\n")
    assert load(tmp_path).y.tolist() == [281]


def test_class_folders_in_sorted_order(tmp_path):
    for name in ("n02/z.png", "n01/y.png", "n01/x.png", "n03/w.png"):
        write(tmp_path / name)
    batch = load(tmp_path)
    assert batch.ids == ("n01/x.png", "n01/y.png", "n02/z.png", "n03/w.png")
    assert (batch.y.tolist(), batch.classes) == ([0, 0, 1, 2], ("n01", "n02", "n03"))
    assert load(tmp_path, classes=("n00", "n01", "n02", "n03"), limit=3, order="first").y.tolist() == [1, 1, 2]
    (tmp_path / "classes.txt").write_text("n03\nn02\nn01\n")
    assert load(tmp_path, classes=str(tmp_path / "classes.txt")).y.tolist() == [2, 2, 1, 0]
    assert load(tmp_path, limit=2, shuffle=True, seed=1).classes == ("n01", "n02", "n03")


def test_hidden_and_system_folders_are_no_classes(tmp_path):
    for name in ("cat/a.png", "dog/b.png", ".ipynb_checkpoints/c.png", "__MACOSX/d.png", "dog/.trash/e.png"):
        write(tmp_path / name)
    assert load(tmp_path).classes == ("cat", "dog")
    assert load(tmp_path).ids == ("cat/a.png", "dog/b.png")


def test_two_levels_that_could_both_be_classes_are_refused(tmp_path):
    for name in ("test/cat/a.png", "test/dog/b.png", "train/cat/c.png", "train/dog/d.png", "train/eel/e.png"):
        write(tmp_path / name)
    sentence = (
        "which folders in .* are the classes, test, train or, in each of them, cat, dog: name one .*test'.*classes"
    )
    with pytest.raises(DataError, match=sentence):
        load(tmp_path)
    assert load(tmp_path / "train").classes == ("cat", "dog", "eel")
    assert load(tmp_path, classes=("train", "test")).y.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize(
    "names",
    [
        ("n01/images/a.png", "n02/images/b.png"),  # Tiny ImageNet
        ("cat/home/a.png", "cat/zoo/b.png", "dog/street/c.png", "dog/home/d.png"),
        ("cat/1/a.png", "cat/2/b.png", "dog/1/c.png", "dog/2/d.png", "dog/e.png"),
        ("train/cat/a.png", "train/dog/b.png"),
    ],
)
def test_folders_in_class_folders_belong_to_the_class(tmp_path, names: tuple[str, ...]):
    for name in names:
        write(tmp_path / name)
    assert load(tmp_path).classes == tuple(sorted({name.split("/")[0] for name in names}))


def test_class_folders_named_by_number_are_indices(tmp_path):
    for name in ("2/a.png", "10/b.png"):
        write(tmp_path / name)
    assert load(tmp_path).y.tolist() == [10, 2]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1"])
def test_every_mode_becomes_colour_or_grey(tmp_path, mode):
    write(tmp_path / "k" / "a.png", mode=mode)
    expected = np.asarray(Image.open(tmp_path / "k" / "a.png").convert("RGB"))
    assert torch.equal(load(tmp_path).x[0], torch.from_numpy(expected.copy()).permute(2, 0, 1) / 255)
    assert load(tmp_path, channels=1).x.shape == (1, 1, 6, 5)


def test_sixteen_bits_are_scaled(tmp_path):
    (tmp_path / "k").mkdir()
    Image.fromarray(np.array([[0, 257], [32896, 65535]], np.uint16)).save(tmp_path / "k" / "a.png")
    assert torch.equal(load(tmp_path, channels=1).x[0, 0] * 255, torch.tensor([[0.0, 1.0], [128.0, 255.0]]))


def test_size_covers_and_crops_the_centre(tmp_path):
    stripes = np.zeros((4, 12, 3), np.uint8)
    stripes[:, 4:8] = 255
    (tmp_path / "k").mkdir()
    Image.fromarray(stripes).save(tmp_path / "k" / "a.png")
    assert torch.equal(load(tmp_path, size=4).x, torch.ones(1, 3, 4, 4))
    wide = load(tmp_path, size=(4, 6)).x
    assert wide.shape == (1, 3, 4, 6)
    assert wide[0, 0, 0].tolist() == [0, 1, 1, 1, 1, 0]
    assert load(tmp_path, size=(8, 8)).x.mean() > 0.9


def test_rotated_photos_are_turned_upright(tmp_path):
    (tmp_path / "k").mkdir()
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn clockwise
    Image.new("RGB", (8, 4)).save(tmp_path / "k" / "a.jpg", exif=turned)
    assert load(tmp_path).x.shape == (1, 3, 8, 4)


def test_a_size_makes_images_alike(tmp_path):
    write(tmp_path / "k" / "a.png", 6, 5)
    write(tmp_path / "k" / "b.png", 7, 5)
    assert load(tmp_path, size=5).x.shape == (2, 3, 5, 5)


def test_the_pickled_version_is_refused(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": [1]}))
    for path in (tmp_path, tmp_path / "data_batch_1"):
        with pytest.raises(DataError):
            load(path)


@pytest.mark.parametrize(
    ("contents", "path", "options", "error", "sentence"),
    [
        ({"m/a.png": 6, "n/b.png": 6}, "", {"classes": ("m",)}, DataError, "1 label names are not among the 1 classes"),
        (
            {"k/a.png": 6},
            "",
            {"size": 0},
            OptionError,
            "'size' .* is not valid: Input should be greater than or equal to 1, got 0",
        ),
        ({"k/a.png": 6, "k/b.png": 7}, "", {}, DataError, r"\(6, 5\) and, in 'k/b.png', \(7, 5\): pass a size"),
        ({"k/a.png": 6, "k/b.png": b"\x89PNG", "k/c.jpg": b"?"}, "", {}, DataError, "2 of 3 images .* 'k/b.png'"),
        ({"a.png": 6, "b.png": 6}, "", {}, DataError, "2 files in .* have no label, first 'a.png': pass labels"),
        ({"a.png": 6, "b.png": 6, "labels.csv": b"a.png,dog"}, "", {}, DataError, "no row for 1 of 2 samples"),
    ],
)
def test_errors(
    tmp_path, contents: dict[str, Any], path: str, options: dict[str, Any], error: type[InputError], sentence
):
    for name, content in contents.items():
        if isinstance(content, int):
            write(tmp_path / name, content)
        else:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=sentence):
        load(tmp_path / path, **options)


def test_images_that_exceed_the_memory_are_refused(tmp_path, monkeypatch):
    write(tmp_path / "k" / "a.png")
    monkeypatch.setattr("rlab.data.fields.free_bytes", lambda: 100)
    with pytest.raises(DataError):
        load(tmp_path)
