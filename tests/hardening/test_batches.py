"""Classes of flipped samples: how uneven they are, and the weights that compensate."""

from __future__ import annotations

import pytest
import torch

from rlab.hardening.batches import class_counts, class_weights, draw, imbalance, row_weights


def test_rare_classes_are_drawn_more_often() -> None:
    counts = class_counts(torch.tensor([0] * 60 + [1] * 20 + [2] * 2), 4)
    assert counts.tolist() == [60, 20, 2, 0]
    weights = class_weights(counts)
    assert weights.tolist() == pytest.approx([1 / 3, 1, 4, 4])  # relative to the median class, at most four times
    assert "from cat 60 down to 3 0" in imbalance(counts, ("cat", "dog", "bird"))
    assert imbalance(torch.tensor([10.0, 12.0]), ()) == ""
    assert imbalance(torch.zeros(3), ()) == ""
    y = torch.tensor([0] * 60 + [1] * 20 + [2] * 2)
    drawn = y[torch.cat([draw(row_weights(y, weights), 10, torch.Generator().manual_seed(i)) for i in range(200)])]
    share = torch.bincount(drawn).float() / len(drawn)
    assert share[0] < 0.55  # 60 of 82 without weights
    assert share[2] > 0.09  # 2 of 82 without


def test_weights_of_samples_with_several_labels_are_those_of_the_rarest() -> None:
    y = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 0, 0]])
    assert row_weights(y, torch.tensor([0.5, 1.0, 4.0])).tolist() == [0.5, 4.0, 0.5]
    assert class_counts(y, 3).tolist() == [2, 0, 1]
