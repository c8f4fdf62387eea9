"""What is attacked: pets that a detector finds or segmenters mark, the age read from an ECG, and spoken words."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from PIL import Image
from PIL.Image import Resampling

from benchmarks.beyond.keywords import keywords
from benchmarks.beyond.models import DEEPLAB_SIDE, YOLOX_SIDE, deeplab, regressor, segmenter, yolox
from benchmarks.data import real
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.maps import encode_map
from rlab.victims.base import Victim

CATS = ("Egyptian_Mau", "Persian", "Siamese")
COCO = {"cat": 15, "dog": 16}
VOC = {"cat": 8, "dog": 12}
ONE = {"cat": 1, "dog": 1}  # class of the segmenter that is trained here
SMALL_SIDE, TRAINED_ON = 64, 120
OBJECT, BACKGROUND, BORDER = 1, 2, 3  # of a trimap


@dataclass(frozen=True)
class Case:
    """A model with its data, the goal of the attack, and how many samples and queries it gets."""

    title: str
    load: Callable[[slice], tuple[Victim, Batch]]  # for these samples
    goal: str
    patch: tuple[int, ...]
    budget: int
    samples: int  # those on which the model is wrong from the start included
    quick: int  # samples of the quick run; 0: none
    at: tuple[int, ...]  # queries at which the page reports
    part: int = 10**6  # samples of one raw file

    def parts(self) -> list[slice]:
        return [slice(at, min(at + self.part, self.samples)) for at in range(0, self.samples, self.part)]


EMPTY = ("Egyptian_Mau_20", "japanese_chin_199", "wheaten_terrier_195")  # their trimaps mark no object


@cache
def _names() -> list[tuple[str, str]]:
    """The name and species of each pet, shuffled."""
    with (real("pets") / "labels.csv").open(encoding="utf-8") as file:
        rows = [(row["image"], "cat" if row["breed"] in CATS else "dog") for row in csv.DictReader(file)]
    order = np.random.default_rng(0).permutation(len(rows))
    return [rows[i] for i in order if rows[i][0] not in EMPTY]


def _picture(name: str, side: int) -> torch.Tensor:
    with Image.open(real("pets") / "images" / f"{name}.jpg") as image:
        values = np.asarray(image.convert("RGB").resize((side, side), Resampling.BILINEAR))
    return torch.from_numpy(values.copy()).permute(2, 0, 1).float() / 255


def _trimap(name: str, side: int) -> torch.Tensor:
    with Image.open(real("pets") / "trimaps" / f"{name}.png") as image:
        return torch.from_numpy(np.asarray(image.resize((side, side), Resampling.NEAREST)).astype(np.int64))


def _batch(names: Sequence[tuple[str, str]], side: int, y: torch.Tensor, target: str) -> Batch:
    x = torch.stack([_picture(name, side) for name, _ in names])
    ids = tuple(name for name, _ in names)
    return Batch(x, y, ids, target="boxes" if target == "boxes" else "map", eight_bit=True)


def pets_with_boxes(rows: slice = slice(None)) -> Batch:
    """Pets at the side of YOLOX, each with the box around the object of its trimap."""
    names, objects = _names()[rows], []
    for name, species in names:
        down, across = (_trimap(name, YOLOX_SIDE) != BACKGROUND).nonzero().T
        corners = [across.min(), down.min(), across.max() + 1, down.max() + 1]
        objects.append((torch.stack(corners)[None].float(), torch.tensor([COCO[species]])))
    return _batch(names, YOLOX_SIDE, TargetBoxes.of(objects).encode(), "boxes")


def detector(rows: slice) -> tuple[Victim, Batch]:
    return yolox(), pets_with_boxes(rows)


def pets_with_maps(side: int, rows: slice, of: dict[str, int]) -> Batch:
    """Pets with the class of each pixel; the border is ignored."""
    names, maps = _names()[rows], []
    for name, species in names:
        trimap = _trimap(name, side)
        truth = torch.where(trimap == OBJECT, of[species], 0)
        maps.append(torch.where(trimap == BORDER, -1, truth))
    return _batch(names, side, encode_map(torch.stack(maps), (side, side)), "map")


@cache
def _small_segmenter() -> Victim:
    return segmenter(pets_with_maps(SMALL_SIDE, slice(TRAINED_ON), ONE))


def small_segmenter(rows: slice) -> tuple[Victim, Batch]:
    return _small_segmenter(), pets_with_maps(SMALL_SIDE, slice(TRAINED_ON + rows.start, TRAINED_ON + rows.stop), ONE)


def large_segmenter(rows: slice) -> tuple[Victim, Batch]:
    return deeplab(), pets_with_maps(DEEPLAB_SIDE, rows, VOC)


@cache
def _age() -> Victim:
    return regressor(load(str(real("ptbxl")), target="numbers", label_column="age", folds="1-8"))


def age(rows: slice) -> tuple[Victim, Batch]:
    """The age of patients whose records, of fold 9, the network was not trained on."""
    return _age(), load(str(real("ptbxl")), target="numbers", label_column="age", folds=9)[rows]


CASES = {
    "detector": Case(
        "A pet vanishes from YOLOX-nano (416 pixels, patches of 32)", detector, "vanish", (32, 32), 100, 90, 10,
        (10, 20, 50, 100), 15,
    ),
    "segmenter": Case(
        "Half of a pet is lost, a U-Net of 64 pixels trained here (patches of 8)", small_segmenter, "lose:1:0.5", (8, 8),
        100, 24, 8, (10, 20, 50, 100),
    ),
    "deeplab": Case(
        "A fifth of the pixels change class, DeepLabv3 (513 pixels, patches of 64)", large_segmenter, "pixels:0.2", (64, 64),
        40, 12, 0, (10, 20, 40), 4,
    ),
    "regression": Case(
        "Age from an ECG of twelve leads moves by 10 years (PTB-XL, fold 9)", age, "deviate:10", (40,), 50, 48, 16,
        (5, 10, 20, 50),
    ),
    "keywords": Case(
        "A spoken word is taken for another, keyword network of MLPerf Tiny (16,000 values, patches of 500)", keywords,
        "untargeted", (500,), 100, 12, 0, (10, 20, 50, 100),
    ),
}  # fmt: skip
