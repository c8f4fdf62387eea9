"""Losses by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rlab.hardening.trainable import cross_entropy, disagreement, divergence, jensen_shannon

SURE, OTHER = torch.tensor([[0.0, -math.inf]]), torch.tensor([[-math.inf, 0.0]])
HALF = torch.tensor([[0.5, 0.5]]).log()


def test_equal_outputs_cost_nothing_and_opposite_ones_the_most() -> None:
    assert jensen_shannon([HALF, HALF, HALF], False).tolist() == pytest.approx([0.0], abs=1e-6)
    assert jensen_shannon([SURE, OTHER], False).tolist() == pytest.approx([math.log(2)], abs=1e-5)
    assert divergence(HALF, HALF, False).tolist() == pytest.approx([0.0], abs=1e-6)
    quarter = torch.tensor([[0.25, 0.75]]).log()
    by_hand = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert divergence(HALF, quarter, False).tolist() == pytest.approx([by_hand], abs=1e-6)
    assert float(disagreement("kl", HALF, [quarter, HALF], False)) == pytest.approx(by_hand / 2, abs=1e-6)
    assert float(disagreement("jsd", SURE, [OTHER], False)) == pytest.approx(math.log(2), abs=1e-5)


def test_multiple_labels_are_independent() -> None:
    even, sure = torch.zeros(1, 2), torch.tensor([[0.0, 50.0]])
    assert jensen_shannon([even, even], True).tolist() == pytest.approx([0.0], abs=1e-6)
    third = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) - 0.5 * math.log(2)  # one of two labels differs
    assert jensen_shannon([even, sure], True).tolist() == pytest.approx([third / 2], abs=1e-5)
    assert float(cross_entropy(even, torch.tensor([[1.0, 0.0]]), True)) == pytest.approx(math.log(2), abs=1e-6)


def test_an_impossible_class_gives_no_nan() -> None:
    assert torch.isfinite(cross_entropy(SURE, torch.tensor([[1.0, 0.0]]), False))
    assert torch.isfinite(jensen_shannon([SURE, OTHER, HALF], False)).all()
