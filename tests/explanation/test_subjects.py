"""Explanations of objects that a detector finds, and of a class of a map; the models' parts that matter are planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rlab
from rlab.data.batch import Batch
from rlab.errors import InputError, ModelError, OptionError
from rlab.explanation.options import keep_found
from rlab.explanation.run import explain_batch, parse_method
from rlab.explanation.scores import MethodJudge, pointing
from rlab.explanation.subject import ObjectSubject, RegionSubject, find_subject
from rlab.predictions.boxes import Boxes, TargetBoxes
from rlab.predictions.maps import encode_map

SIDE = 32
BOX, EYE = (6.0, 4.0, 26.0, 28.0), (slice(8, 14), slice(12, 18))  # left, top, right, bottom; rows and columns
DOG = 3


def one_box(score: np.ndarray, label: int = DOG) -> np.ndarray:
    """A row for each score: a box, the score and the class."""
    place = np.tile(np.array(BOX, np.float32), (len(score), 1))
    return np.concatenate([place, score[:, None], np.full((len(score), 1), label)], 1)[:, None].astype(np.float32)


def detector() -> rlab.CallableVictim:
    """Finds a dog as far as its eye is bright, and nothing else."""

    def detect(x: np.ndarray) -> np.ndarray:
        return one_box(x[:, 0, EYE[0], EYE[1]].mean((1, 2)).clip(0, 1))

    return rlab.CallableVictim(detect, outputs="boxes", box_columns="class")


def scene(n: int = 2) -> Batch:
    x = torch.rand(n, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0)) * 0.2
    x[:, :, EYE[0], EYE[1]] = 0.9
    y = TargetBoxes.of([(torch.tensor([BOX]), torch.tensor([DOG]))] * n).encode()
    return Batch(x, y, target="boxes")


def truth() -> torch.Tensor:
    eye = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    eye[EYE] = True
    return eye


@pytest.mark.parametrize("method", ["belief(queries=180)", "drise(masks=400, cells=8)", "occlusion(along=8)"])
def test_the_map_of_an_object_is_highest_on_the_part_that_decides(method):
    made = explain_batch(detector(), scene(), method, progress=False)
    assert pointing(made.maps, truth().expand(2, -1, -1)).tolist() == [1.0, 1.0]
    assert made.labels.tolist() == [DOG, DOG]


class EyeNet(torch.nn.Module):
    """The detector as a module; with shuffled weights it reads dark places and finds nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(SIDE, SIDE))
        self.weight.data[EYE] = 1 / 36

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(one_box((x[:, 0] * self.weight).sum((1, 2)).detach().numpy()))


def test_a_copy_that_finds_nothing_has_no_sanity_check():
    victim = rlab.TorchVictim(EyeNet(), outputs="boxes", box_columns="class", device="cpu")
    compared = MethodJudge(steps=2)(victim, scene(), [parse_method("occlusion(along=4)")])
    assert compared.judged["occlusion"].scores["sanity"].isnan().all()
    assert "the copy with shuffled weights finds nothing" in compared.left_out[-1]
    assert compared.judged["occlusion"].mean("stability").value == pytest.approx(1.0)


def test_erasing_hides_the_part_before_anything_else():
    """The score falls as early as without erasing, or earlier."""
    judge = MethodJudge(steps=16, checks=False)
    methods = {
        name: parse_method(f"belief(queries=200, erase={share})") for name, share in (("with", 0.3), ("without", 0))
    }
    found = judge(detector(), scene(), methods)
    with_erasing, without = (found.judged[name].mean("deletion").value for name in methods)
    assert with_erasing <= without + 0.01
    assert found.judged["with"].mean("pointing").value == pytest.approx(1.0)  # against the true box


def test_the_share_of_an_object_is_the_best_overlap_times_score_of_its_class():
    subject = ObjectSubject(torch.tensor([1]), torch.tensor([[0.0, 0, 10, 10]]))
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [0, 0, 10, 10]])
    rows = Boxes.of([(boxes, torch.tensor([0.9, 0.8, 0.3]), torch.tensor([2, 1, 1]))]).encode()
    assert subject.share(rows, torch.tensor([0])).tolist() == pytest.approx([0.4])
    assert subject.share(Boxes.none(1, rows.device).encode(), torch.tensor([0])).tolist() == [0.0]


def test_what_the_data_name_is_explained_and_else_the_best_box():
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    victim = detector()
    rows = Boxes.of([(boxes, torch.tensor([0.9, 0.6]), torch.tensor([1, 2]))]).encode()
    x = torch.zeros(1, 1, SIDE, SIDE)
    plain = Batch(x, torch.tensor([0]))
    named = Batch(x, TargetBoxes.of([(torch.tensor([[21.0, 20, 30, 30]]), torch.tensor([2]))]).encode(), target="boxes")
    for batch, labels, expected in ((plain, None, 1), (named, None, 2), (plain, torch.tensor([2]), 2)):
        subject, found = find_subject(victim, rows, batch, labels)
        assert (subject.labels.tolist(), found.tolist()) == ([expected], [True])
    assert not find_subject(victim, rows, plain, torch.tensor([7]))[1].any()
    wrong = replace(named, y=TargetBoxes.of([(torch.tensor([[21.0, 20, 30, 30]]), torch.tensor([1]))]).encode())
    assert not find_subject(victim, rows, wrong, None)[1].any()


def test_samples_without_the_object_are_left_out_and_counted():
    batch = scene(3)
    dark = replace(batch, x=batch.x * torch.tensor([1.0, 0.1, 1.0]).view(3, 1, 1, 1))
    kept = keep_found(detector(), dark, None)
    assert (kept.ids, [name for name, _ in kept.left_out]) == (("0", "2"), ["1"])
    with pytest.raises(OptionError, match="finds no object to explain in 1 of 3 samples, first '1'"):
        explain_batch(detector(), dark, "occlusion(along=4)", progress=False)
    with pytest.raises(OptionError, match="in none of 3 samples"):
        keep_found(detector(), dark, torch.full((len(dark),), 7))


def segmenter() -> rlab.CallableVictim:
    """Class 2 in the lower half if the corner at the upper left is bright; class 0 elsewhere."""

    def segment(x: np.ndarray) -> np.ndarray:
        share = x[:, 0, :8, :8].mean((1, 2)).clip(0, 1)
        height = SIDE - np.round(share * SIDE / 2).astype(int)
        return (np.arange(SIDE)[None, :, None] >= height[:, None, None]) * np.full((len(x), 1, SIDE), 2)

    return rlab.CallableVictim(segment, outputs="map")


def test_a_class_of_a_map_depends_on_what_it_is_read_from():
    x = torch.full((1, 1, SIDE, SIDE), 0.1)
    x[:, :, :8, :8] = 1.0
    target = torch.zeros(1, SIDE, SIDE, dtype=torch.int64)
    target[:, SIDE // 2 :] = 2
    batch = Batch(x, encode_map(target, (SIDE, SIDE)), target="map")
    made = explain_batch(segmenter(), batch, "belief(queries=250)", progress=False)
    assert isinstance(made.subject, RegionSubject)
    assert made.labels.tolist() == [2]
    corner = torch.zeros(1, SIDE, SIDE, dtype=torch.bool)
    corner[:, :8, :8] = True
    assert pointing(made.maps, corner).tolist() == [1.0]
    truth = made.subject.truth((SIDE, SIDE))
    assert truth is not None
    assert torch.equal(truth, target == 2)


@pytest.mark.parametrize("method", ["mask", "gradcam"])
def test_methods_that_explain_classes_only(method):
    with pytest.raises(InputError):
        explain_batch(detector(), scene(), method, progress=False)


def test_numbers_cannot_be_explained_yet():
    victim = rlab.CallableVictim(lambda x: x.mean((1, 2, 3))[:, None], outputs="numbers")
    batch = Batch(torch.rand(2, 1, 8, 8), torch.rand(2, 1), target="numbers")
    with pytest.raises(ModelError, match="cannot be explained yet"):
        explain_batch(victim, batch, "occlusion(along=4)", progress=False)


def test_the_command_writes_pictures_of_objects(tmp_path):
    made = rlab.explain(detector(), scene(), method="belief(queries=150)", out=tmp_path, progress=False)
    assert len(made) == 2
    assert any(tmp_path.glob("*.html"))
