"""Average precision, IoU and errors of all samples, against hand-made answers and against pycocotools and scikit-learn."""

from __future__ import annotations

import contextlib
import io
import math

import numpy as np
import pytest
import torch

from rlab.predictions.boxes import Boxes, TargetBoxes
from rlab.predictions.metrics import COCO, mean_error, mean_iou, mean_precision

OBJECT = torch.tensor([[0.0, 0, 10, 10]])


def rows_of(*samples: tuple[list[list[float]], list[float], list[int]]) -> torch.Tensor:
    return Boxes.of(
        [(torch.tensor(b).reshape(-1, 4), torch.tensor(s), torch.tensor(k)) for b, s, k in samples]
    ).encode()


def test_hand_made_precision():
    targets = TargetBoxes.of([(OBJECT, torch.tensor([1])), (OBJECT, torch.tensor([1]))]).encode()
    good, bad = [0.0, 0, 10, 10], [50.0, 50, 60, 60]
    every = np.arange(2)
    assert mean_precision(rows_of(([good], [0.9], [1]), ([good], [0.5], [1])), targets)(every) == 1.0
    # a wrong box above the second right one: precision 1 up to a recall of one half, then 2/3
    figure = mean_precision(rows_of(([good, bad], [0.9, 0.8], [1, 1]), ([good], [0.5], [1])), targets)
    assert figure(every) == pytest.approx((51 * 1 + 50 * 2 / 3) / 101)
    assert figure(np.array([1, 1])) == 1.0
    assert mean_precision(rows_of(([good], [0.9], [2]), ([], [], [])), targets)(every) == 0.0
    # a box that overlaps by 10/11 counts at nine of ten overlaps
    wide = mean_precision(rows_of(([[0.0, 0, 11, 10]], [0.9], [1]), ([[0.0, 0, 11, 10]], [0.9], [1])), targets, COCO)
    assert wide(every) == pytest.approx(0.9)
    assert math.isnan(
        mean_precision(rows_of(([], [], [])), TargetBoxes.of([(OBJECT[:0], torch.tensor([]))]).encode())(every[:1])
    )


@pytest.mark.parametrize("limits", [(0.5,), COCO])
def test_precision_as_pycocotools_computes_it(limits):
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    draw = np.random.default_rng(0)
    objects, found = [], []
    for _ in range(12):
        true = draw.uniform(0, 60, (draw.integers(0, 5), 2))
        true = np.concatenate([true, true + draw.uniform(10, 40, true.shape)], 1)
        labels = draw.integers(0, 3, len(true))
        near = np.concatenate([true + draw.normal(0, 3, true.shape), draw.uniform(0, 50, (3, 4))])
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 5)
        objects.append((torch.tensor(true), torch.tensor(labels)))
        kinds = np.concatenate([np.where(draw.random(len(true)) < 0.8, labels, 1), draw.integers(0, 3, 3)])
        found.append((torch.tensor(near), torch.tensor(draw.uniform(0.01, 1, len(near))), torch.tensor(kinds)))
    rows, targets = Boxes.of(found).encode(), TargetBoxes.of(objects).encode()
    ours = mean_precision(rows, targets, limits)(np.arange(len(rows)))
    boxes, truth = Boxes.decode(rows), TargetBoxes.decode(targets)

    def listed(xyxy: torch.Tensor) -> list[float]:
        x1, y1, x2, y2 = xyxy.double().tolist()
        return [x1, y1, x2 - x1, y2 - y1]

    with contextlib.redirect_stdout(io.StringIO()):
        known = coco.COCO()
        known.dataset = {
            "images": [{"id": i} for i in range(len(rows))],
            "categories": [{"id": k} for k in range(3)],
            "annotations": [
                {"id": 100 * i + j + 1, "image_id": i, "category_id": int(truth.label[i, j]), "bbox": listed(truth.xyxy[i, j]),
                 "area": listed(truth.xyxy[i, j])[2] * listed(truth.xyxy[i, j])[3], "iscrowd": 0}
                for i, j in truth.there.nonzero().tolist()
            ],
        }  # fmt: skip
        known.createIndex()
        guesses = known.loadRes(
            [
                {"image_id": i, "category_id": int(boxes.label[i, j]), "bbox": listed(boxes.xyxy[i, j]),
                 "score": float(boxes.score[i, j])}
                for i, j in (boxes.score > 0).nonzero().tolist()
            ]
        )  # fmt: skip
        judge = evaluation.COCOeval(known, guesses, "bbox")
        judge.params.iouThrs = np.array(limits)
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][:, :, :, 0, -1]
    assert ours == pytest.approx(float(precision[precision > -1].mean()), abs=1e-6)
    assert 0.1 < ours < 0.9


def test_iou_of_maps_against_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(0)
    truth = draw.integers(-1, 3, (6, 40))
    guess = np.where(draw.random(truth.shape) < 0.6, truth.clip(0), draw.integers(0, 3, truth.shape))
    ours = mean_iou(torch.tensor(guess, dtype=torch.float32), torch.tensor(truth))
    counts = truth >= 0
    assert ours(np.arange(6)) == pytest.approx(sklearn.jaccard_score(truth[counts], guess[counts], average="macro"))
    some = counts[:2]
    assert ours(np.arange(2)) == pytest.approx(sklearn.jaccard_score(truth[:2][some], guess[:2][some], average="macro"))


def test_error_of_numbers():
    figure = mean_error(torch.tensor([[1.0], [5.0]]), torch.tensor([[2.0], [2.0]]))
    assert (figure(np.arange(2)), figure(np.array([1, 1]))) == (2.0, 3.0)
