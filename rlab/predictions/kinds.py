"""The kinds of prediction."""

from __future__ import annotations

from typing import Literal

Prediction = Literal["classes", "boxes", "map", "numbers"]
WORDS: dict[Prediction, str] = {
    "classes": "scores of classes",
    "boxes": "boxes",
    "map": "a map of classes",
    "numbers": "numbers",
}
