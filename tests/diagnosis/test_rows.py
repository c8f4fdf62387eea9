"""The doctor on models that return boxes, maps and numbers: what is read in another way than it is meant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rlab
from rlab.diagnosis import Severity
from rlab.errors import ModelError
from rlab.victims import CallableVictim
from tests.predictions.planted import Floats, bright, mean_value, planted_batch, squares


def changed_boxes(change: str, x: Floats) -> Floats:
    found = squares(x)
    x1, y1, x2, y2 = (found[..., i].copy() for i in range(4))
    places: dict[str, tuple[Any, ...]] = {
        "box-scale": (x1 / 16, y1 / 16, x2 / 16, y2 / 16),
        "box-format": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
        "box-corner": (x1, y1, x2 - x1, y2 - y1),
        "box-order": (y1, x1, y2, x2),
    }
    if change == "label-offset":
        return np.concatenate([found[..., :4], np.zeros_like(found[..., :1]), found[..., 4:]], -1)
    for i, values in enumerate(places[change]):
        found[..., i] = values
    return found


@pytest.mark.parametrize("change", ["box-scale", "box-format", "box-corner", "box-order", "label-offset"])
def test_boxes_in_another_form_are_recognised(change: str) -> None:
    victim = CallableVictim(lambda x: changed_boxes(change, x), outputs="boxes")
    batch = planted_batch("boxes", 4)
    found = rlab.doctor(victim, batch, progress=False)
    assert change in {finding.name for finding in found.findings}
    assert not found.healthy


@pytest.mark.parametrize(("kind", "function"), [("boxes", squares), ("map", bright), ("numbers", mean_value)])
def test_a_healthy_model(kind: Any, function: Any) -> None:
    batch = planted_batch(kind, 4)
    if kind == "numbers":  # samples that differ
        x = batch.x * torch.tensor([1.0, 0.9, 0.8, 0.7])[:, None, None, None]
        batch = replace(batch, x=x, y=100 * x.mean((1, 2, 3))[:, None])
    found = rlab.doctor(CallableVictim(function, outputs=kind), batch, progress=False)
    assert found.healthy
    assert found.accuracy == (None if kind == "numbers" else 1.0)


@pytest.mark.parametrize(
    ("kind", "function", "name"),
    [
        ("map", lambda x: bright(x) + 1, "label-offset"),
        ("numbers", lambda x: np.zeros((len(x), 2), np.float32), "targets"),
        ("numbers", lambda x: np.zeros(len(x), np.float32), "constant"),
        ("boxes", lambda x: squares(x) * np.nan, "nan"),
        ("boxes", lambda x: squares(x)[:, :, :4], "model"),
    ],
)
def test_what_is_wrong_is_named(kind: Any, function: Any, name: str) -> None:
    found = rlab.doctor(CallableVictim(function, outputs=kind), planted_batch(kind, 4), progress=False)
    assert name in {finding.name for finding in found.findings}


@pytest.mark.parametrize(("shift", "words"), [(1, "1 too high"), (-1, "1 too low")])
def test_class_numbers_that_are_off_by_one_are_said_in_words(shift: int, words: str) -> None:
    victim = CallableVictim(lambda x: bright(x) + shift, outputs="map")
    found = rlab.doctor(victim, planted_batch("map", 4), progress=False)
    assert words in found.findings[0].what


def test_labels_are_counted_only_of_classes() -> None:
    found = rlab.doctor(CallableVictim(squares, outputs="boxes"), planted_batch("boxes", 4), progress=False)
    assert "one-class" not in {check.name for check in found.passed}


def test_data_of_another_kind_are_named() -> None:
    found = rlab.doctor(CallableVictim(squares, outputs="boxes"), planted_batch("numbers", 4), progress=False)
    assert "targets" in {finding.name for finding in found.findings}


def test_undecoded_boxes_are_an_error_of_doctor_and_attack_alike() -> None:
    """Cells of a grid, as YOLOX returns them: nothing is found in any reading."""

    def cells(x: Floats) -> Floats:
        found = squares(x)
        found[..., :4] = [0.4, 0.6, 0.2, 0.1]
        return found

    victim, batch = CallableVictim(cells, outputs="boxes", box_format="xywh"), planted_batch("boxes", 4)
    found = rlab.doctor(victim, batch, progress=False)
    assert (found.findings[0].level, found.findings[0].name) == (Severity.ERROR, "found")
    assert "examples/detector.py" in found.findings[0].change
    with pytest.raises(ModelError, match=r"examples/detector\.py"):
        rlab.attack(victim, batch, goal="vanish", patch=4, palette="dead_pixel", budget=9, progress=False)
