"""Losses, averaged and interpolated weights, and classes of flipped samples, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rlab.hardening.batches import class_counts, class_weights, draw, imbalance, row_weights
from rlab.hardening.trainable import blend, cross_entropy, disagreement, divergence, follow, jensen_shannon, take

SURE, OTHER = torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])
HALF, QUARTER = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()


def test_equal_outputs_cost_nothing_and_opposite_ones_the_most() -> None:
    assert jensen_shannon([HALF, HALF, HALF], False).tolist() == pytest.approx([0.0], abs=1e-6)
    assert jensen_shannon([SURE, OTHER], False).tolist() == pytest.approx([math.log(2)], abs=1e-5)
    assert divergence(HALF, HALF, False).tolist() == pytest.approx([0.0], abs=1e-6)
    by_hand = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence(HALF, QUARTER, False).tolist() == pytest.approx([by_hand], abs=1e-6)
    assert float(disagreement("kl", HALF, [QUARTER, HALF], False)) == pytest.approx(by_hand / 2, abs=1e-6)
    assert float(disagreement("jsd", SURE, [OTHER], False)) == pytest.approx(math.log(2), abs=1e-5)
    assert torch.isfinite(cross_entropy(SURE, torch.tensor([[1.0, 0.0]]), False))  # an impossible class gives no NaN
    assert torch.isfinite(jensen_shannon([SURE, OTHER, HALF], False)).all()


def test_multiple_labels_are_independent() -> None:
    even, sure = torch.zeros(1, 2), torch.tensor([[0.0, 50.0]])
    assert jensen_shannon([even, even], True).tolist() == pytest.approx([0.0], abs=1e-6)
    third = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) - 0.5 * math.log(2)  # one of two labels differs
    assert jensen_shannon([even, sure], True).tolist() == pytest.approx([third / 2], abs=1e-5)
    assert float(cross_entropy(even, torch.tensor([[1.0, 0.0]]), True)) == pytest.approx(math.log(2), abs=1e-6)


def test_averages_and_blends_by_hand() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    old = take(model)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value += {"0.weight": 1.0, "1.num_batches_tracked": 7}.get(name, 0)
    average = follow(old, model, 0.75)
    assert torch.allclose(average["0.weight"], old["0.weight"] + 0.25)
    assert int(average["1.num_batches_tracked"]) == 7
    start, end = ({"w": torch.tensor([w]), "n": torch.tensor(n)} for w, n in ((0.0, 1), (2.0, 5)))
    assert {name: value.tolist() for name, value in blend(start, end, 0.25).items()} == {"w": [0.5], "n": 5}


def test_rare_classes_are_drawn_more_often() -> None:
    y = torch.tensor([0] * 60 + [1] * 20 + [2] * 2)
    counts = class_counts(y, 4)
    assert counts.tolist() == [60, 20, 2, 0]
    weights = class_weights(counts)
    assert weights.tolist() == pytest.approx([1 / 3, 1, 4, 4])  # relative to the median class, at most four times
    assert "from 60 of class cat down to 0 of class 3" in imbalance(counts, ("cat", "dog", "bird"))
    assert imbalance(torch.tensor([10.0, 12.0]), ()) == imbalance(torch.zeros(3), ()) == ""
    drawn = y[torch.cat([draw(row_weights(y, weights), 10, torch.Generator().manual_seed(i)) for i in range(200)])]
    share = torch.bincount(drawn).float() / len(drawn)
    assert share[0] < 0.55  # 60 of 82 without weights
    assert share[2] > 0.09  # 2 of 82 without


def test_weights_of_samples_with_several_labels_are_those_of_the_rarest() -> None:
    y = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    assert row_weights(y, torch.tensor([0.5, 1.0, 4.0])).tolist() == [0.5, 4.0, 0.5]
    assert class_counts(y, 3).tolist() == [2, 0, 1]
