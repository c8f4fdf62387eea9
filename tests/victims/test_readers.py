"""Answers of detectors, segmentation networks and regressors, in the forms in which libraries return them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.errors import InputError
from rlab.predictions.boxes import Boxes
from rlab.victims import CallableVictim, SklearnVictim

X = torch.zeros(2, 3, 20, 40)  # height 20, width 40
CORNERS = [[2.0, 4.0, 12.0, 14.0], [20.0, 0.0, 30.0, 10.0]]
SCORES = [[0.9, 0.0, 0.0], [0.0, 0.0, 0.6]]  # of three classes


def triple() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.tensor(CORNERS), torch.tensor([0.9, 0.6]), torch.tensor([0, 2])


def as_rows(place: Any, rest: Any) -> np.ndarray[Any, Any]:
    return np.stack([np.concatenate([np.asarray(place), np.asarray(rest)], 1)] * 2).astype(np.float32)


CENTRES = [[7.0, 9.0, 10.0, 10.0], [25.0, 5.0, 10.0, 10.0]]
UNIT = [[x / 40, y / 20, w / 40, h / 20] for x, y, w, h in CENTRES]
WITH_OBJECTNESS = [[0.9, 1.0, 0.0, 0.0], [0.6, 0.0, 0.0, 1.0]]
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "torchvision": ([dict(zip(("boxes", "scores", "labels"), triple(), strict=True))] * 2, {}),
    "ultralytics": (
        [SimpleNamespace(boxes=SimpleNamespace(xyxy=triple()[0], conf=triple()[1], cls=triple()[2].float()))] * 2,
        {},
    ),
    "array": (as_rows(CORNERS, SCORES), {}),
    "centres": (as_rows(CENTRES, SCORES), {"box_format": "xywh"}),
    "unit": (as_rows(UNIT, SCORES), {"box_format": "xywh", "box_scale": "unit"}),
    "objectness": (as_rows(CORNERS, WITH_OBJECTNESS), {"box_columns": "objectness"}),
    "ultralytics' onnx": (as_rows(CENTRES, SCORES).transpose(0, 2, 1), {"box_format": "xywh", "box_layout": "columns"}),
    "after nms": (as_rows(CORNERS, [[0.9, 0], [0.6, 2]]), {"box_columns": "class"}),
    "two arrays": ((np.array([CORNERS] * 2), np.array([SCORES] * 2)), {}),
    "two named arrays": ({"scores": np.array([SCORES] * 2), "boxes": np.array([CORNERS] * 2)}, {}),
    "hugging face": (
        SimpleNamespace(
            pred_boxes=torch.tensor([UNIT] * 2),
            logits=torch.tensor([[[0.9, 1e-9, 1e-9, 0.1], [1e-9, 1e-9, 0.6, 0.4]]] * 2).log(),
        ),
        {"box_format": "xywh", "box_scale": "unit"},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_boxes_in_every_form(form: str) -> None:
    answer, how = FORMS[form]
    victim = CallableVictim(lambda x: answer, outputs="boxes", **how)
    boxes = Boxes.decode(victim(X))
    assert victim.prediction == "boxes"
    assert victim.classes is None
    assert victim.width == 600
    torch.testing.assert_close(boxes.xyxy[:, :2], torch.tensor([CORNERS] * 2))
    torch.testing.assert_close(boxes.score[:, :2], torch.tensor([[0.9, 0.6]] * 2))
    assert boxes.label[:, :3].tolist() == [[0, 2, -1]] * 2


def test_overlapping_boxes_of_a_class_are_removed_but_for_the_best() -> None:
    place = [[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 4]]
    rows = as_rows(place, [[0.9, 0.0], [0.8, 0.7], [0.6, 0.0]])
    found = {}
    for overlap in (0.5, 1.0):
        boxes = Boxes.decode(CallableVictim(lambda x: rows, outputs="boxes", box_overlap=overlap)(X))
        found[overlap] = sorted(round(float(score), 2) for score in boxes.score[0] if score)
    assert found == {0.5: [0.6, 0.7, 0.9], 1.0: [0.6, 0.7, 0.8, 0.9]}


MAPS = {
    "classes": np.ones((2, 20, 40), np.int64),
    "scores": np.stack([np.zeros((2, 20, 40)), np.ones((2, 20, 40))], 1),
    "torchvision": {"out": torch.stack([torch.zeros(2, 20, 40), torch.ones(2, 20, 40)], 1)},
    "one logit": np.full((2, 1, 20, 40), 3.0),
    "one probability": np.full((2, 1, 20, 40), 0.75),
    "half the size": np.ones((2, 10, 20), np.int64),
}


@pytest.mark.parametrize("form", MAPS)
def test_maps_in_every_form(form: str) -> None:
    victim = CallableVictim(lambda x: MAPS[form], outputs="map")
    rows = victim(X)
    assert rows.shape == (2, 800)
    assert (rows == 1).all()
    assert victim.prediction == "map"


def _numbers(answer: Any) -> torch.Tensor:
    return CallableVictim(lambda x: answer, outputs="numbers")(X)


def test_numbers_are_left_as_they_are() -> None:
    answers = np.array([63.5, -2.0], np.float32)
    for shaped in (answers, answers[:, None]):
        rows = _numbers(shaped)
        assert rows.tolist() == [[63.5], [-2.0]]


def test_a_regressor_of_scikit_learn_is_recognised() -> None:
    from sklearn.linear_model import LinearRegression

    x = np.random.default_rng(0).random((20, 12)).astype(np.float32)
    model = LinearRegression().fit(x, x.sum(1))
    victim = SklearnVictim(model)
    assert victim.prediction == "numbers"
    rows = victim(torch.from_numpy(x).view(20, 3, 2, 2))
    torch.testing.assert_close(rows[:, 0], torch.from_numpy(x.sum(1)), atol=1e-4, rtol=0)
    images = x.reshape(20, 3, 2, 2)
    result = rlab.attack(
        model, (images, x.sum(1)), goal="deviate:0.5", palette="dead_pixel@0.5", patch=1, budget=60, progress=False
    )
    assert result.setting.target == "numbers"
    assert result.succeeded.any()


BAD: list[tuple[Any, Any, str]] = [
    ("boxes", np.zeros((2, 3)), r"expected the model to return an array \(n, boxes, 5 or more\)"),
    ("boxes", np.zeros((2, 7, 4)), "5 or more"),
    ("boxes", as_rows(CORNERS, [[5.0], [1.0]]), "scores of boxes in 0..1"),
    ("boxes", as_rows(CORNERS, SCORES)[:1], "boxes of 2 inputs, got those of 1"),
    ("boxes", [{"boxes": torch.zeros(3, 4), "scores": torch.zeros(2), "labels": torch.zeros(2)}] * 2, "for each input"),
    ("map", np.zeros((2, 5)), "map of classes"),
    ("map", np.full((2, 20, 40), 0.5), "class numbers"),
    ("numbers", np.zeros((2, 3, 4)), "numbers for each of 2 inputs"),
    ("numbers", np.zeros(3), "numbers for each of 2 inputs"),
]


@pytest.mark.parametrize(("outputs", "answer", "words"), BAD)
def test_answers_that_do_not_fit_are_one_sentence(outputs: Any, answer: Any, words: str) -> None:
    with pytest.raises(rlab.VictimError, match=words):
        CallableVictim(lambda x: answer, outputs=outputs)(X)


def test_options_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(InputError, match="box_format"):
        CallableVictim(detector(), outputs="boxes", box_format="corners")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="box_overlap"):
        CallableVictim(detector(), outputs="boxes", box_overlap=0.0)
    with pytest.raises(InputError, match="needs outputs=boxes"):
        rlab.load_victim("tests.victims.test_readers:detector", box_format="xywh")
    victim = rlab.load_victim(
        "tests.victims.test_readers:detector", outputs="boxes", box_format="xywh", box_scale="unit"
    )
    assert (victim.reading.box_format, victim.reading.box_scale) == ("xywh", "unit")
    with pytest.raises(InputError, match="wrap the request in a function"):
        rlab.HttpVictim("http://127.0.0.1:9", outputs="boxes")


def detector() -> Any:
    """A detector by name."""
    return lambda x: as_rows(UNIT, SCORES)
