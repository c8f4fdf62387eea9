"""Boxes and maps as rows: what is encoded comes back, and overlaps are those of plain geometry."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.predictions.boxes import MOST, Boxes, TargetBoxes, overlaps, remaining
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import decode_map, encode_map, sampled
from rlab.predictions.targets import own_targets


def some_boxes(count: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    low = torch.randint(0, 20, (count, 2), generator=draw).float()
    return torch.cat([low, low + torch.randint(1, 12, (count, 2), generator=draw)], 1)


def test_overlap_is_intersection_over_union() -> None:
    boxes = torch.tensor([[0.0, 0, 4, 4], [2, 0, 6, 4], [10, 10, 11, 11], [3, 3, 3, 3]])
    expected = torch.tensor([[1, 1 / 3, 0, 0], [1 / 3, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(overlaps(boxes, boxes), expected)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_overlap_counts_pixels(seed: int) -> None:
    first, second = some_boxes(3, seed), some_boxes(4, seed + 1)
    masks = [torch.stack([_mask(box) for box in boxes]) for boxes in (first, second)]
    shared = (masks[0][:, None] & masks[1][None]).sum((2, 3))
    either = (masks[0][:, None] | masks[1][None]).sum((2, 3))
    torch.testing.assert_close(overlaps(first, second), shared / either)


def _mask(box: Tensor) -> Tensor:
    mask = torch.zeros(32, 32, dtype=torch.bool)
    left, top, right, bottom = box.int().tolist()
    mask[top:bottom, left:right] = True
    return mask


@given(st.integers(0, 10**6), st.sampled_from([0.21, 0.47, 0.81]))
@settings(max_examples=25, deadline=None)
def test_what_remains_is_what_going_through_the_boxes_gives(seed: int, overlap: float) -> None:
    boxes, label = some_boxes(20, seed), torch.arange(20) % 2
    kept: list[int] = []
    for i in range(20):
        same = [j for j in kept if label[j] == label[i]]
        if not any(float(overlaps(boxes[j][None], boxes[i][None])) > overlap for j in same):
            kept.append(i)
    score = torch.linspace(1, 0.1, 20)
    found = remaining(boxes[None], label[None], score[None], overlap)[0]
    assert found.nonzero().flatten().tolist() == kept


@given(st.lists(st.integers(0, 130), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_boxes_come_back_from_their_rows(counts: list[int]) -> None:
    found = [(some_boxes(n, n), torch.linspace(0.9, 0.1, n), torch.arange(n) % 7) for n in counts]
    rows = Boxes.of(found).encode()
    assert rows.shape == (len(counts), 6 * MOST)
    boxes = Boxes.decode(rows)
    for row, (xyxy, score, label) in enumerate(found):
        n = min(len(score), MOST)
        assert torch.equal(boxes.xyxy[row, :n], xyxy[:n])
        assert torch.equal(boxes.score[row, :n], score[:n])
        assert torch.equal(boxes.label[row, :n], label[:n])
        assert (boxes.label[row, n:] == -1).all()
        assert not boxes.score[row, n:].any()
    targets = TargetBoxes.of([(xyxy, label) for xyxy, _, label in found])
    again = TargetBoxes.decode(targets.encode())
    assert torch.equal(again.xyxy, targets.xyxy)
    assert torch.equal(again.label, targets.label)
    assert again.there.sum(1).tolist() == counts


def test_candidates_keep_the_best_of_each_object_and_class() -> None:
    xyxy = torch.tensor([[[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30]]])
    scores = torch.tensor([[[0.9, 0.2], [0.8, 0.3], [0.0, 0.0005]]])
    boxes = Boxes.of_candidates(xyxy, scores, 0.5)
    assert [(round(float(s), 2), int(c)) for s, c in zip(boxes.score[0], boxes.label[0], strict=True) if s] == [
        (0.9, 0),
        (0.3, 1),
    ]


def test_a_score_of_nan_is_not_dropped() -> None:
    scores = torch.tensor([[[0.9], [float("nan")]]])
    boxes = Boxes.of_candidates(some_boxes(2, 0)[None], scores, 0.5)
    assert boxes.score.isnan().any()
    assert Boxes.decode(boxes.encode()).score.isnan().any()


@pytest.mark.parametrize(("size", "points"), [((100,), 100), ((5, 300), 5 * 128), ((513, 513), 128 * 128)])
def test_maps_keep_the_class_of_regular_points(size: tuple[int, ...], points: int) -> None:
    classes = torch.arange(size[-1]).expand(2, *size) // 2
    rows = encode_map(classes, size)
    assert rows.shape == (2, points)
    back = decode_map(rows, size)
    assert back.shape[1:] == sampled(size)
    assert (back.diff(dim=-1) >= 0).all()
    if max(size) <= 128:
        assert torch.equal(back, classes)
    assert torch.equal(encode_map(classes[..., None].expand(*classes.shape, 1)[..., 0], size), rows)


def test_a_map_of_another_size_is_read_at_the_same_places() -> None:
    small = torch.tensor([[[1, 2], [3, 4]]])
    large = small.repeat_interleave(4, 1).repeat_interleave(4, 2)
    assert torch.equal(encode_map(small, (8, 8)), encode_map(large, (8, 8)))


BAD: list[tuple[Prediction, Tensor, str]] = [
    ("boxes", torch.tensor([[0.0, 0, 4, 4]]), "5 values for each object"),
    ("boxes", torch.tensor([[4.0, 0, 0, 4, 1]]), "order and scale"),
    ("boxes", torch.tensor([[0.0, 0, 400, 4, 1]]), "order and scale"),
    ("boxes", torch.tensor([[0.0, 0, float("nan"), 4, 1]]), "order and scale"),
    ("boxes", torch.tensor([[0.0, 0, 4, 4, 1.5]]), "whole number"),
    ("map", torch.zeros(1, 9, dtype=torch.int64), "64 points"),
    ("map", torch.full((1, 64), -2), "at least 0"),
    ("numbers", torch.tensor([[float("nan")]]), "finite"),
    ("numbers", torch.tensor([1.0]), "row of numbers"),
]


@pytest.mark.parametrize(("target", "y", "words"), BAD)
def test_targets_are_checked(target: Prediction, y: Tensor, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Batch(torch.zeros(1, 1, 8, 8), y, target=target)


def test_an_image_without_objects_is_allowed() -> None:
    y = TargetBoxes.of([(torch.zeros(0, 4), torch.zeros(0))]).encode()
    assert Batch(torch.zeros(1, 1, 8, 8), y, target="boxes").y.shape == (1, 5)


def test_a_model_s_own_answers_are_targets_of_a_batch() -> None:
    place = torch.tensor([[-4.0, 1, 6, 12], [9, 9, 12, 12], [1, 1, 3, 3]])
    rows = Boxes.of([(place, torch.tensor([0.9, 0.8, 0.1]), torch.tensor([2, 1, 0]))]).encode()
    y = own_targets("boxes", rows, (8, 8))
    batch = Batch(torch.zeros(1, 1, 8, 8), y, target="boxes")  # the second lies outside, the third is weak
    objects = TargetBoxes.decode(batch.y)
    assert objects.xyxy[objects.there].tolist() == [[0, 1, 6, 8]]
    Batch(torch.zeros(1, 1, 8, 8), own_targets("map", torch.ones(1, 64), (8, 8)), target="map")
    Batch(torch.zeros(1, 1, 8, 8), own_targets("numbers", torch.ones(1, 2), (8, 8)), target="numbers")
