"""What is shown of boxes, maps and numbers before and after an attack."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rlab.core.setting import Setting
from rlab.predictions.boxes import Boxes, TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.results.predicted import box_changes, box_flip_words, figures, predicted, true_label

ONE, FAR = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 30.0, 30.0)


def setting(target: Prediction, goal: str) -> Setting:
    classes = ("dog", "cat") if target != "numbers" else ()
    return Setting((32, 32), (8, 8), ("dead_pixel",), goal, "auto", 10, (0.0, 1.0), 0, classes, target=target)


def answer(*boxes: tuple[tuple[float, ...], float, int]) -> Tensor:
    place, score, label = zip(*boxes, strict=True) if boxes else ((), (), ())
    return Boxes.of([(torch.tensor(place).reshape(-1, 4), torch.tensor(score), torch.tensor(label))]).encode()[0]


@pytest.mark.parametrize(
    ("before", "after", "fates"),
    [
        (answer((ONE, 0.9, 0)), answer((ONE, 0.5, 0)), [("dog 0.90", "kept")]),
        (answer((ONE, 0.9, 0)), answer((ONE, 0.2, 0)), [("dog 0.90", "lost")]),
        (answer((ONE, 0.9, 0)), answer((ONE, 0.9, 1)), [("dog 0.90", "lost"), ("cat 0.90", "new")]),
        (answer((ONE, 0.9, 0)), answer((FAR, 0.8, 0)), [("dog 0.90", "lost"), ("dog 0.80", "new")]),
        (answer(), answer((FAR, 0.8, 0)), [("dog 0.80", "new")]),
        (answer((ONE, 0.2, 0)), answer(), []),
    ],
)
def test_boxes_are_kept_lost_or_new(before: Tensor, after: Tensor, fates: list[tuple[str, str]]) -> None:
    assert [(box.words, box.fate) for box in box_changes(setting("boxes", "vanish"), before, after)] == fates


def test_the_goal_says_from_which_score_on_a_box_counts() -> None:
    assert predicted(setting("boxes", "vanish:0.1"), answer((ONE, 0.2, 0)), torch.zeros(5)) == "dog 0.20"
    assert predicted(setting("boxes", "vanish"), answer((ONE, 0.2, 0)), torch.zeros(5)) == "nothing"


def test_words_and_figures_of_each_kind() -> None:
    shown = setting("boxes", "vanish")
    places = torch.tensor([[ONE, ONE, FAR]])
    objects = TargetBoxes(places, torch.tensor([[0, 0, 1]])).encode()[0]
    assert true_label(shown, objects) == "2 × dog + cat"
    rows = figures(shown, objects, answer((ONE, 0.9, 0)), answer())
    assert [(row.name, round(row.before, 2), row.after) for row in rows] == [
        ("dog", 0.9, 0),
        ("dog", 0.9, 0),
        ("cat", 0, 0),
    ]

    maps, truth = setting("map", "pixels:0.2"), torch.tensor([0, 0, 0, 1, 1, -1])
    assert true_label(maps, truth) == "dog + cat"
    now = torch.tensor([0.0, 0, 1, 1, 1, 1])
    assert predicted(maps, now, truth) == "IoU 0.67"  # 2/3 of dogs, 2/3 of cats
    assert [row.after for row in figures(maps, truth, truth.float(), now)] == [pytest.approx(2 / 3)] * 2

    numbers, age = setting("numbers", "deviate:5"), torch.tensor([63.0])
    assert true_label(numbers, age) == "63"
    assert predicted(numbers, torch.tensor([71.44]), age) == "71.44"
    (row,) = figures(numbers, age, torch.tensor([60.0]), torch.tensor([71.44]))
    assert row.words == "60 → 71.44"
    assert row.width(row.after) == pytest.approx(100)
    assert predicted(numbers, torch.tensor([float("nan")]), age) == "NaN"


@pytest.mark.parametrize(
    ("goal", "after", "words"),
    [
        ("vanish", ((ONE, 0.9, 0), (FAR, 0.12, 1)), "cat is no longer found (score 0.80 → 0.12)"),
        ("misclassify", ((ONE, 0.9, 0), (FAR, 0.6, 0)), "cat is found as dog 0.60"),
        ("move:0.8", ((ONE, 0.9, 0), ((24.0, 20.0, 34.0, 30.0), 0.8, 1)), "cat is no longer covered by its box"),
        ("appear", ((ONE, 0.9, 0), (FAR, 0.8, 1), ((0.0, 20.0, 8.0, 30.0), 0.4, 0)), "dog 0.40 appeared"),
        ("map50:0.8", ((ONE, 0.9, 0),), "the average precision fell (1.00 → 0.50)"),
    ],
)
def test_a_detectors_flip_names_the_objects_of_the_goal(goal: str, after: Any, words: str) -> None:
    """Not the boxes with the highest scores."""
    objects = TargetBoxes(torch.tensor([[ONE, FAR]]), torch.tensor([[0, 1]])).encode()[0]
    before = answer((ONE, 0.9, 0), (FAR, 0.8, 1))
    assert box_flip_words(setting("boxes", goal), objects, before, answer(*after)) == words
