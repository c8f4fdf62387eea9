"""Boxes, maps and numbers from arrays, tables and PTB-XL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlab.data.load import load
from rlab.errors import DataError, InputError
from rlab.predictions.boxes import TargetBoxes
from rlab.predictions.maps import decode_map

X = np.random.default_rng(0).random((2, 3, 8, 10), np.float32)
BOXES = np.array([[[1, 2, 5, 6, 3], [0, 0, 0, 0, -1]], [[0, 0, 10, 8, 1], [2, 2, 4, 4, 0]]], np.float32)
MAPS = np.arange(160).reshape(2, 8, 10) % 4


@pytest.mark.parametrize("where", ["memory", "npz", "npy"])
@pytest.mark.parametrize(("target", "y"), [("boxes", BOXES), ("map", MAPS), ("numbers", np.array([61.5, -2]))])
def test_arrays_of_every_target(tmp_path, where, target: Any, y):
    np.savez(tmp_path / "a.npz", x=X, y=y)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    places: dict[str, Any] = {"memory": (X, y), "npz": tmp_path / "a.npz", "npy": tmp_path / "x.npy"}
    more = {"labels": str(tmp_path / "y.npy")} if where == "npy" else {}
    batch = load(places[where], target=target, **more)
    assert (batch.target, len(batch), batch.numbered) == (target, 2, False)
    if target == "boxes":
        found = TargetBoxes.decode(batch.y)
        assert torch.equal(torch.cat([found.xyxy, found.label[..., None]], 2), torch.from_numpy(y))
    elif target == "map":
        assert torch.equal(decode_map(batch.y, (8, 10)), torch.from_numpy(y))
    else:
        assert batch.y.tolist() == [[61.5], [-2.0]]
    assert load(places[where], target=target, limit=1, **more).y.shape == (1, batch.y.shape[1])


@pytest.mark.parametrize(
    ("target", "y", "sentence"),
    [
        ("boxes", BOXES[:, :, :4], "expected boxes as .* got float32 of shape"),
        ("boxes", BOXES * [3, 3, 3, 3, 1], "expected boxes left, top, right, bottom within 10 x 8 pixels"),
        ("map", MAPS[:, :4], "expected int64 maps with 80 points"),
        ("map", MAPS - 3, "expected classes of at least 0 in a map"),
        ("numbers", np.array([np.nan, 1]), "expected finite numbers"),
        ("numbers", np.array(["a", "b"]), "expected numbers as"),
        ("numbers", MAPS, "expected numbers as"),
    ],
)
def test_bad_targets(target: Any, y, sentence):
    with pytest.raises(DataError, match=sentence):
        load((X, y), target=target)


def test_numbers_of_a_table_of_signals(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c,age\n0.1,0.2,0.3,61.5\n0.2,0.1,0.5,7\n")
    batch = load(tmp_path / "a.csv", target="numbers", label_column="age", bounds=(0, 1))
    assert (batch.shape, batch.y.tolist(), batch.classes) == ((1, 3), [[61.5], [7.0]], ())
    (tmp_path / "b.csv").write_text("0.1,0.2\n0.2,0.1\n")
    (tmp_path / "y.csv").write_text("age\n61.5\n7\n")
    assert load(tmp_path / "b.csv", target="numbers", labels=str(tmp_path / "y.csv")).y.tolist() == [[61.5], [7.0]]


@pytest.mark.real
def test_age_from_ptbxl(real):
    folder = real / "ptbxl"
    batch = load(folder, target="numbers", label_column="age", limit=12)
    assert (batch.target, batch.y.shape) == ("numbers", (12, 1))
    assert 0 < float(batch.y.min()) <= float(batch.y.max()) <= 89
    with pytest.raises(InputError, match="has no column 'shoe_size'"):
        load(folder, target="numbers", label_column="shoe_size")
