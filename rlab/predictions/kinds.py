"""The kinds of prediction."""

from __future__ import annotations

from typing import Literal, get_args

Prediction = Literal["classes", "boxes", "map", "numbers"]
PREDICTIONS: tuple[Prediction, ...] = get_args(Prediction)
WORDS: dict[Prediction, str] = {
    "classes": "scores of classes",
    "boxes": "boxes",
    "map": "a map of classes",
    "numbers": "numbers",
}
