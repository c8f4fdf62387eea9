"""Models that predict boxes, maps and numbers whose exact answers are known, and inputs for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.core.goals.base import Goal
from rlab.data.batch import Batch
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import encode_map
from rlab.victims import CallableVictim

Floats = NDArray[np.float32]
SIZE, SIDE = 16, 4
PLACES = ((1, 1), (9, 1), (5, 9))  # left and top of the squares that the detector looks at; its classes are 0, 1 and 0
CLASSES = (0, 1, 0)
DARK, BRIGHT = 0.125, 0.875


def boxes_of(places: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(
        [[PLACES[i][0], PLACES[i][1], PLACES[i][0] + SIDE, PLACES[i][1] + SIDE] for i in places]
    ).float()


def look(x: Floats) -> Floats:
    """(n, 1, 16, 16) -> (n, 3): the mean of each square."""
    means = [x[:, 0, top : top + SIDE, left : left + SIDE].mean((1, 2)) for left, top in PLACES]
    return np.stack(means, 1).astype(np.float32)


def squares(x: Floats) -> Floats:
    """(n, 3, 6): a square's score is its mean; the other class has half of what is missing to 0.9, unless the square is dark."""
    means = look(x)
    place = np.broadcast_to(boxes_of((0, 1, 2)).numpy(), (len(x), 3, 4))
    scores = np.stack([means, np.where(means > 0.15, np.clip(0.9 - means, 0, 1) / 2, 0)], 2)
    for i, own in enumerate(CLASSES):
        scores[:, i] = scores[:, i, [own, 1 - own]]
    return np.concatenate([place, scores], 2).astype(np.float32)


def bright(x: Floats) -> NDArray[np.int64]:
    """(n, 16, 16): class 1 where a pixel is bright."""
    return (x[:, 0] > 0.5).astype(np.int64)


def mean_value(x: Floats) -> Floats:
    """(n,): a hundred times the mean."""
    return (100 * x.mean((1, 2, 3))).astype(np.float32)


FUNCTIONS: dict[str, Any] = {"boxes": squares, "map": bright, "numbers": mean_value}


def planted_victim(kind: Prediction) -> CallableVictim:
    assert kind != "classes"
    return CallableVictim(FUNCTIONS[kind], outputs=kind)


def planted_batch(kind: Prediction, n: int = 3) -> Batch:
    """Dark images with two bright squares, those of places 0 and 1."""
    x = torch.full((n, 1, SIZE, SIZE), DARK)
    for left, top in PLACES[:2]:
        x[:, 0, top : top + SIDE, left : left + SIDE] = BRIGHT
    y = {
        "boxes": TargetBoxes.of([(boxes_of((0, 1)), torch.tensor([0, 1]))] * n).encode(),
        "map": encode_map((x[:, 0] > 0.5).long(), (SIZE, SIZE)),
        "numbers": 100 * x.mean((1, 2, 3))[:, None],
    }[kind]
    return Batch(x, y, target=kind, classes=("dog", "cat") if kind != "numbers" else ())


# Goals that can be reached by brightening or darkening patches, with the model's answers to the untouched images.
REACHABLE: dict[str, Prediction] = {
    "vanish": "boxes",
    "vanish:0.5": "boxes",
    "vanish-all": "boxes",
    "misclassify": "boxes",
    "appear": "boxes",
    "appear:0": "boxes",
    "map50:0.9": "boxes",
    "iou:1:0.8": "map",
    "pixels:0.1": "map",
    "lose:1": "map",
    "grow:1:0.1": "map",
    "deviate:10%": "numbers",
    "deviate:+5": "numbers",
    "deviate:-5": "numbers",
    "above:35": "numbers",
    "under:20": "numbers",
}


def margin_of(goal: Goal, batch: Batch) -> torch.Tensor:
    """The margin of the untouched images."""
    victim = planted_victim(batch.target)
    scores = victim(batch.x)
    return goal.margin(scores, goal.aim(scores, batch.y))
