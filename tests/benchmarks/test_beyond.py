"""The benchmark beyond classifiers: how YOLOX is decoded, what the cases hold, and how parts become a row of the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.beyond import cases, models, run
from benchmarks.data import Absent
from benchmarks.raw import Curves, Origin, Raw, Store, from_curves
from rlab.core.goals import parse_goal
from rlab.diagnosis.rows import found_share
from rlab.predictions.boxes import Boxes, TargetBoxes


def test_outputs_of_yolox_are_relative_to_their_cells() -> None:
    found = models.decoded(np.zeros((1, 3549, 85), np.float32))[0]
    assert found[0, :4].tolist() == [0, 0, 8, 8]
    assert found[53, :4].tolist() == [8, 8, 8, 8]  # the second cell of the second row of 52
    assert found[52 * 52, :4].tolist() == [0, 0, 16, 16]
    assert found[-1, :4].tolist() == [12 * 32, 12 * 32, 32, 32]


def test_yolox_finds_most_pets() -> None:
    try:
        victim, batch = cases.detector(slice(0, 4))
    except Absent as why:
        pytest.skip(str(why))
    boxes = Boxes.decode(victim(batch.x))
    assert found_share(boxes, TargetBoxes.decode(batch.y)) >= 0.5


def test_networks_have_the_declared_outputs() -> None:
    assert models.Segmenter()(torch.zeros(1, 3, 64, 64)).shape == (1, 2, 64, 64)
    for case in cases.CASES.values():
        assert str(parse_goal(case.goal)) in (case.goal, case.goal.removesuffix(":0.5"))
        assert case.at[-1] == case.budget


def test_a_row_holds_the_parts_that_all_policies_have(tmp_path: Path) -> None:
    store, case = Store(tmp_path), cases.CASES["detector"]
    near: Curves = (((3, 2.0),), ())
    far: Curves = (((3, 8.0),), ((9, 9.0),))
    for number, rows in enumerate(case.parts()[:2]):
        for policy in run.POLICIES[: 3 - number]:  # the second part misses a policy
            curves = near if policy == run.OURS else far
            store.write(run.file("detector", policy, rows), Raw(from_curves(curves)), Origin("0", "", "", 0.0, {}))
    held = run.kept(store, "detector")
    assert {policy: len(curves) for policy, curves in held.items()} == dict.fromkeys(run.POLICIES, 2)
    assert "samples" in run.part("detector", held)
    assert run.kept(store, "regression") == {}
