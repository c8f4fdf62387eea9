"""Goals against margins computed by hand."""

from __future__ import annotations

import inspect
import math
import random
from dataclasses import Field, fields
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor, tensor

from rlab.core import goals
from rlab.core.goals import (
    Above,
    Appear,
    Below,
    Deviate,
    Goal,
    Move,
    MultiLabel,
    Targeted,
    Under,
    Untargeted,
    parse_goal,
)
from rlab.core.goals.numbers import Direction
from rlab.core.goals.parse import with_positions
from rlab.errors import DataError, InputError, OptionError

ALL_GOALS = [kind for _, kind in inspect.getmembers(goals, inspect.isclass) if not inspect.isabstract(kind)]
SCORES = tensor([[-1.0, -2.0, -3.0], [-4.0, -0.5, -1.5], [-2.0, -2.5, -0.25]])
LABELS = tensor([0, 0, 2])
ODDS = tensor([[2.0, -1.0], [0.5, 3.0], [-0.25, -4.0]])
SEVERAL = tensor([[1, 0], [1, 0], [1, 0]])


@pytest.mark.parametrize(
    ("goal", "scores", "labels", "margin"),
    [
        (Untargeted(), SCORES, LABELS, [1.0, -3.5, 1.75]),  # true class minus the best other
        (Targeted(1), SCORES, LABELS, [1.0, -1.0, 2.25]),  # best other class minus the target
        (Targeted(2), SCORES, LABELS, [2.0, 1.0, -1.75]),
        (Below(math.exp(-2)), SCORES, LABELS, [1.0, -2.0, 1.75]),  # log-probability minus the threshold's
        (MultiLabel(), ODDS, SEVERAL, [1.0, -3.0, -0.25]),  # the weakest label
        (MultiLabel(0), ODDS, SEVERAL, [2.0, 0.5, -0.25]),
        (MultiLabel(1), ODDS, SEVERAL, [1.0, -3.0, 4.0]),
    ],
)
def test_margins(goal: Goal, scores: Tensor, labels: Tensor, margin: list[float]) -> None:
    torch.testing.assert_close(goal.margin(scores, labels), tensor(margin))
    assert goal.reached(scores, labels).tolist() == [value < 0 for value in margin]


def test_a_tie_is_not_yet_an_error() -> None:
    assert not Untargeted().reached(tensor([[-1.0, -1.0]]), tensor([0])).any()
    assert not MultiLabel().reached(tensor([[0.0]]), tensor([[1]])).any()


def test_samples_that_are_right_before_the_attack() -> None:
    for goal in (Untargeted(), Below(0.5), Targeted(1)):
        assert goal.correct(SCORES, LABELS).tolist() == [True, False, True]
    assert Targeted(2).correct(SCORES, LABELS).tolist() == [True, False, False]  # the last is of the target class
    assert MultiLabel().correct(ODDS, SEVERAL).tolist() == [True, False, False]
    assert MultiLabel(0).correct(ODDS, SEVERAL).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("goal", "labels", "kind", "sentence"),
    [
        (Untargeted(), tensor([0, 3]), DataError, "labels run from 0 to 3 but the model has 3 classes"),
        (Untargeted(), tensor([-1, 2]), DataError, "labels run from -1 to 2"),
        (Below(0.2), tensor([7]), DataError, "expected labels in 0..2"),
        (Untargeted(), tensor([[0, 1, 0]]), DataError, "-D multilabel=false"),
        (Targeted(3), tensor([0]), OptionError, "expected a target class in 0..2, got 3"),
        (Targeted(-1), tensor([0]), OptionError, "got -1"),
        (Targeted(1), tensor([5]), DataError, "labels run from 5 to 5"),
        (MultiLabel(), tensor([0, 1]), DataError, "one column for each of the model's 3 outputs"),
        (MultiLabel(), tensor([[0, 1]]), DataError, "one column for each"),
        (MultiLabel(), tensor([[0, 1, 2]]), DataError, "zeros and ones"),
        (MultiLabel(3), tensor([[0, 1, 1]]), OptionError, "expected a label in 0..2, got 3"),
    ],
)
def test_labels_that_do_not_fit_the_goal(goal: Goal, labels: Tensor, kind: type[InputError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        goal.check(labels, 3)
    assert sentence in str(caught.value)


def test_valid_labels() -> None:
    Untargeted().check(tensor([0, 2]), 3)
    Targeted(2).check(tensor([0, 2]), 3)
    MultiLabel(2).check(tensor([[0, 1, 1], [0, 0, 0]]), 3)


def test_only_multilabel_is_multilabel() -> None:
    assert [goal.multilabel for goal in (Untargeted(), Targeted(0), Below(0.5), MultiLabel())] == [False] * 3 + [True]


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("untargeted", Untargeted()),
        ("targeted:3", Targeted(3)),
        ("below:0.2", Below(0.2)),
        ("multilabel", MultiLabel()),
        ("multilabel:2", MultiLabel(2)),
    ],
)
def test_goals_by_name(text: str, goal: Goal) -> None:
    assert parse_goal(text) == goal
    assert str(goal) == text


def drawn(kind: type[Goal], draw: random.Random) -> Goal:
    """A goal of this class with random fields."""

    def value(field: Field[Any]) -> Any:
        number, digits = draw.uniform(0.16, 0.94), draw.choice((1, 2, 17))
        if isinstance(field.default, bool):
            return draw.random() < 0.5
        if field.name == "direction":
            return draw.choice(get_args(Direction))
        if field.name in ("label", "target"):
            return draw.choice((field.default,) * (field.default is None) + (draw.randrange(10**7), np.int64(3)))
        number = round(number, digits) if digits < 17 else number
        return number * 10 ** draw.randrange(-8, 9) if kind in (Above, Under, Deviate) else number

    return kind(**{field.name: value(field) for field in fields(kind)})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ALL_GOALS)
def test_the_text_of_a_goal_holds_every_field(kind: type[Goal]) -> None:
    for seed in range(50):
        goal = drawn(kind, random.Random(seed))
        assert parse_goal(str(goal)) == goal, str(goal)


def test_near_values_have_different_texts() -> None:
    assert str(Above(1732351.0)) != str(Above(1732354.0))
    assert [str(goal) for goal in (Above(70), Deviate(0.1, relative=True), Move(), Appear())] == [
        "above:70", "deviate:10%", "move:0.5", "appear",
    ]  # fmt: skip


def test_target_classes_as_arrays_and_numbers_of_numpy() -> None:
    assert Targeted(np.int64(3)) == Targeted(torch.tensor(3)) == Targeted(3)  # type: ignore[arg-type]
    assert Targeted(np.array([1, 2])) == Targeted([1, 2]) != Targeted([2, 1])  # type: ignore[arg-type]
    assert Targeted([1, 2]) not in (Targeted("data"), Targeted(1))
    for wrong in ([0.5], [[1]], None, ["a"]):
        with pytest.raises(OptionError):
            Targeted(wrong)  # type: ignore[arg-type]


UNKNOWN = ["", "wrong", "untargeted:1", "targeted", "targeted:cat", "below", "below:x", "multilabel:x", "targeted:1:2"]
NOT_PROBABILITIES = ["below:0", "below:1", "below:-0.1", "below:1.5", "below:nan"]


@pytest.mark.parametrize("text", [*UNKNOWN, *NOT_PROBABILITIES])
def test_what_is_not_a_goal(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_goal(text)
    expected = "a probability between 0 and 1" if text in NOT_PROBABILITIES else "a goal like untargeted, targeted:3"
    assert f"expected {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("goal", "scores", "labels", "margins"),
    [
        (Untargeted(), SCORES, LABELS, [[1.0, 2.0], [-3.5, -2.5], [1.75, 2.25]]),  # over every other class, in order
        (Targeted(1), SCORES, LABELS, [[1.0], [-1.0], [2.25]]),  # over all of them at once
        (MultiLabel(), ODDS, SEVERAL, [[2.0, 1.0], [0.5, -3.0], [-0.25, 4.0]]),
        (MultiLabel(0), ODDS, SEVERAL, [[2.0], [0.5], [-0.25]]),
    ],
)
def test_the_margin_is_the_smallest_alternative(
    goal: Goal, scores: Tensor, labels: Tensor, margins: list[list[float]]
) -> None:
    assert goal.alternatives(scores, labels).tolist() == margins
    assert torch.equal(goal.alternatives(scores, labels).amin(1), goal.margin(scores, labels))


def test_the_lead_over_an_impossible_class_is_finite() -> None:
    scores = tensor([[0.0, -math.inf, -1.0], [-math.inf, 0.0, -math.inf]])
    margins = Untargeted().alternatives(scores, tensor([0, 0]))
    assert margins[0].tolist() == [1e6, 1.0]
    assert margins[1].tolist() == [-1e6, 0.0]
    assert Untargeted().alternatives(tensor([[math.nan, 0.0]]), tensor([0])).isnan().all()


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("targeted:MI", "targeted:2"), ("multilabel:a:b", "multilabel:1"), ("targeted:second-best", "targeted:second-best"),
        ("targeted:1", "targeted:1"), ("lose:MI:0.3", "lose:2:0.3"), ("untargeted", "untargeted"), ("below:0.2", "below:0.2"),
    ],
)  # fmt: skip
def test_goals_name_classes(text: str, positions: str) -> None:
    assert with_positions(text, ("NORM", "a:b", "MI")) == positions


def test_a_goal_that_names_no_class_is_refused() -> None:
    with pytest.raises(OptionError, match="names the class 'XX', but the classes of the data have NORM, MI"):
        with_positions("targeted:XX", ("NORM", "MI"))
    with pytest.raises(OptionError, match="write its number"):
        with_positions("targeted:XX", ())
