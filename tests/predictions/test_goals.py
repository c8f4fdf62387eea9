"""Goals about boxes, maps and numbers: margins whose values are known, and what counts as right before an attack."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rlab.core.goals import Deviate, Goal, MapIoU, Move, Precision, Targeted, Vanish, check_kinds, parse_goal
from rlab.core.goals.boxes import BoxGoal
from rlab.errors import InputError, OptionError
from rlab.predictions.boxes import Boxes, TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.predictions.metrics import average_precision
from tests.predictions.planted import REACHABLE, margin_of, planted_batch, planted_victim

Box = tuple[float, float, float, float]
ONE: Box = (0, 0, 10, 10)
HALF: Box = (0, 0, 10, 5)  # overlaps ONE by one half
FAR: Box = (20, 20, 30, 30)


def answer(*boxes: tuple[Box, float, int]) -> Tensor:
    place, score, label = zip(*boxes, strict=True) if boxes else ((), (), ())
    return Boxes.of([(torch.tensor(place).reshape(-1, 4), torch.tensor(score), torch.tensor(label))]).encode()


def truth(*objects: tuple[Box, int]) -> Tensor:
    place, label = zip(*objects, strict=True) if objects else ((), ())
    return TargetBoxes.of([(torch.tensor(place).reshape(-1, 4), torch.tensor(label))]).encode()


def odds(p: float) -> float:
    return math.log(p / (1 - p))


FLOOR = odds(0.001)
# goal, answer to the untouched image, answer now, objects, margin now (None: not attacked)
BOXES: list[tuple[Goal, Tensor, Tensor, Tensor, float | None]] = [
    (Vanish(), answer((ONE, 0.9, 1)), answer((ONE, 0.6, 1)), truth((ONE, 1)), odds(0.6) - odds(0.3)),
    (Vanish(), answer((ONE, 0.9, 1)), answer((ONE, 0.9, 2)), truth((ONE, 1)), FLOOR - odds(0.3)),
    (Vanish(), answer((ONE, 0.9, 1)), answer((FAR, 0.9, 1)), truth((ONE, 1)), FLOOR - odds(0.3)),
    (Vanish(), answer((ONE, 0.9, 1)), answer(), truth((ONE, 1)), FLOOR - odds(0.3)),
    (Vanish(0.5), answer((HALF, 0.9, 1)), answer((HALF, 0.7, 1)), truth((ONE, 1)), odds(0.7)),
    # the second object is not found at first, so that only the first counts
    (Vanish(), answer((ONE, 0.9, 1)), answer((ONE, 0.8, 1)), truth((ONE, 1), (FAR, 1)), odds(0.8) - odds(0.3)),
    (
        Vanish(every=True),
        answer((ONE, 0.9, 1), (FAR, 0.9, 1)),
        answer((FAR, 0.7, 1)),
        truth((ONE, 1), (FAR, 1)),
        odds(0.7) - odds(0.3),
    ),
    (
        Vanish(),
        answer((ONE, 0.9, 1), (FAR, 0.9, 1)),
        answer((FAR, 0.7, 1)),
        truth((ONE, 1), (FAR, 1)),
        FLOOR - odds(0.3),
    ),
    (Vanish(), answer((ONE, 0.2, 1)), answer(), truth((ONE, 1)), None),
    (Vanish(), answer((ONE, 0.9, 2)), answer(), truth((ONE, 1)), None),
    (Vanish(), answer(), answer(), truth(), None),
    (
        parse_goal("misclassify"),
        answer((ONE, 0.9, 1)),
        answer((ONE, 0.6, 1), (ONE, 0.5, 2)),
        truth((ONE, 1)),
        odds(0.6) - odds(0.5),
    ),
    (parse_goal("misclassify"), answer((ONE, 0.9, 1)), answer((ONE, 0.5, 2)), truth((ONE, 1)), odds(0.3) - odds(0.5)),
    (parse_goal("misclassify"), answer((ONE, 0.9, 1)), answer(), truth((ONE, 1)), odds(0.3) - FLOOR),
    (Move(overlap=0.8), answer((ONE, 0.9, 1)), answer((HALF, 0.9, 1)), truth((ONE, 1)), 0.5 - 0.8),
    (Move(overlap=0.8), answer((ONE, 0.9, 1)), answer(), truth((ONE, 1)), odds(0.3) - FLOOR),
    (Move(overlap=0.8), answer((HALF, 0.9, 1)), answer(), truth((ONE, 1)), None),
    (parse_goal("appear"), answer((ONE, 0.9, 1)), answer((FAR, 0.6, 4)), truth((ONE, 1)), odds(0.3) - odds(0.6)),
    (parse_goal("appear"), answer(), answer((FAR, 0.6, 4)), truth(), odds(0.3) - odds(0.6)),
    (parse_goal("appear:2"), answer(), answer((FAR, 0.6, 4)), truth((ONE, 1)), odds(0.3) - FLOOR),
    (parse_goal("appear"), answer((FAR, 0.9, 1)), answer(), truth((ONE, 1)), None),
    (Precision(value=0.6), answer((ONE, 0.9, 1)), answer((ONE, 0.5, 1)), truth((ONE, 1)), 0.4 * 1.5),
    (Precision(value=0.6), answer((ONE, 0.9, 1)), answer(), truth((ONE, 1)), -0.6),
]


@pytest.mark.parametrize(("goal", "clean", "now", "objects", "margin"), BOXES)
def test_margins_of_boxes(goal: Goal, clean: Tensor, now: Tensor, objects: Tensor, margin: float | None) -> None:
    assert bool(goal.correct(clean, objects)) is (margin is not None)
    if margin is not None:
        aimed = goal.aim(clean, objects)
        assert not goal.reached(clean, aimed)
        found = goal.margin(now, aimed)
        assert float(found) == pytest.approx(margin, abs=1e-4)
        assert float(goal.alternatives(now, aimed).amin(1)) == float(found)
        assert bool(goal.reached(now, aimed)) is (margin < 0)


@pytest.mark.parametrize(
    ("found", "objects", "precision"),
    [
        (answer((ONE, 0.9, 1)), truth((ONE, 1)), 1.0),
        (answer((FAR, 0.9, 1), (ONE, 0.8, 1)), truth((ONE, 1)), 0.5),
        (answer((ONE, 0.9, 1), (ONE, 0.8, 1)), truth((ONE, 1), (FAR, 1)), 0.5),  # the second takes no object
        (answer((ONE, 0.9, 1)), truth((ONE, 1), (FAR, 2)), 0.5),  # the mean over two classes
        (answer(), truth((ONE, 1)), 0.0),
        (answer((ONE, 0.9, 1)), truth(), 0.0),
    ],
)
def test_average_precision_of_an_image(found: Tensor, objects: Tensor, precision: float) -> None:
    value = average_precision(Boxes.decode(found), TargetBoxes.decode(objects), 0.5)
    assert value.tolist() == [pytest.approx(precision)]


MAPS = [
    ("iou:1:0.5", [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], 0.0),
    ("iou:1:0.5", [1, 1, 0, 0], [1, 1, 0, -1], [1, 1, 1, 1], 2 / 3 - 0.5),  # the last point is ignored
    ("iou:1:0.5", [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], None),
    ("iou:1:0.5", [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], None),
    ("pixels:0.5", [1, 1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0], 0.5 - 1 / 3),  # of three points that are right
    ("pixels:0.5", [0, 0], [1, 1], [0, 0], None),
    ("lose:1:0.4", [1, 1, 0, 1], [1, 1, 1, 0], [1, 0, 1, 1], 0.5 - 0.4),
    ("grow:1:0.4", [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], 0.4 - 1 / 3),
]


@pytest.mark.parametrize(("text", "clean", "labels", "now", "margin"), MAPS)
def test_margins_of_maps(text: str, clean: list[int], labels: list[int], now: list[int], margin: float | None) -> None:
    goal, y = parse_goal(text), torch.tensor([labels])
    before, after = (torch.tensor([row]).float() for row in (clean, now))
    assert bool(goal.correct(before, y)) is (margin is not None)
    if margin is not None:
        assert float(goal.margin(after, goal.aim(before, y))) == pytest.approx(margin, abs=1e-6)


NUMBERS = [
    ("deviate:5", [60.0], [63.0], 2.0),
    ("deviate:5", [60.0], [54.0], -1.0),
    ("deviate:10%", [60.0], [63.0], 3.0),
    ("deviate:+5", [60.0], [50.0], 15.0),
    ("deviate:-5", [60.0], [50.0], -5.0),
    ("deviate:5", [60.0, 10.0], [61.0, 16.0], -1.0),
    ("above:70", [60.0], [68.0], 2.0),
    ("under:50", [60.0], [48.0], -2.0),
    ("above:70", [75.0], [80.0], None),
    ("deviate:10%", [0.0], [5.0], None),
]


@pytest.mark.parametrize(("text", "clean", "now", "margin"), NUMBERS)
def test_margins_of_numbers(text: str, clean: list[float], now: list[float], margin: float | None) -> None:
    goal = parse_goal(text)
    before, after = torch.tensor([clean]), torch.tensor([now])
    y = torch.zeros_like(before)  # what is true does not matter
    assert bool(goal.correct(before, y)) is (margin is not None)
    if margin is not None:
        assert float(goal.margin(after, goal.aim(before, y))) == pytest.approx(margin)


@pytest.mark.parametrize(("text", "kind"), REACHABLE.items())
def test_a_goal_is_its_text_and_a_row_with_nan_has_no_margin(text: str, kind: Prediction) -> None:
    goal, batch = parse_goal(text), planted_batch(kind)
    assert parse_goal(str(goal)) == goal
    assert goal.fits == kind
    assert (margin_of(goal, batch) > 0).all()
    scores = planted_victim(kind)(batch.x)
    aimed = goal.aim(scores, batch.y)
    broken = scores.clone()
    broken[0, 0] = math.nan
    assert goal.margin(broken, aimed).isnan().tolist() == [True, False, False]
    assert not goal.reached(broken, aimed)[0]


@pytest.mark.parametrize(
    "text",
    ["vanish:0", "vanish:1", "move:2", "move", "map50:0", "iou:1", "iou:1:2", "iou:x:0.5", "pixels:0", "lose", "deviate",
     "deviate:0", "deviate:x", "deviate:-", "above", "vanish:a", "appear:x", "targeted:second"],
)  # fmt: skip
def test_what_is_not_a_goal(text: str) -> None:
    with pytest.raises(OptionError):
        parse_goal(text)


@pytest.mark.parametrize(
    ("goal", "model", "data"),
    [(Vanish(), "classes", "boxes"), (Vanish(), "boxes", "classes"), (Deviate(1.0), "map", "map"),
     (MapIoU(1, 0.5), "map", "numbers")],
)  # fmt: skip
def test_a_goal_needs_its_kind_of_model_and_data(goal: Goal, model: Prediction, data: Prediction) -> None:
    with pytest.raises(InputError, match=r"predict"):
        check_kinds(goal, model, data)
    check_kinds(goal, goal.fits, goal.fits)


def test_a_target_for_each_sample() -> None:
    clean, y = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]).log(), torch.tensor([0, 2])
    aims = {name: Targeted(name).aim(clean, y).tolist() for name in ("second-best", "least-likely")}
    assert aims == {"second-best": [1, 1], "least-likely": [2, 0]}
    goal = Targeted(torch.tensor([2, 1]))
    assert str(goal) == "targeted:data"
    chosen = goal.aim(clean, y, torch.tensor([2, 1]))
    assert goal.margin(clean, chosen).exp().tolist() == pytest.approx([7.0, 2.0])
    with pytest.raises(InputError, match="no target classes"):
        Targeted("data").aim(clean, y)


def test_a_padded_object_is_never_the_nearest() -> None:
    goal: BoxGoal = Vanish()
    clean, objects = answer((ONE, 0.9, 1)), truth((ONE, 1), (FAR, 1))
    margins = goal.alternatives(clean, goal.aim(clean, objects))
    assert margins.argmin(1).tolist() == [0]
    assert margins.isfinite().all()
