"""Averaged and interpolated weights, by hand."""

from __future__ import annotations

import torch
from torch import nn

from rlab.hardening.trainable import blend, follow, take


def test_averages_and_blends_by_hand() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    average = take(model)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value += {"0.weight": 1.0, "1.num_batches_tracked": 7}.get(name, 0)
    old = average["0.weight"]
    average = follow(average, model, 0.75)
    assert torch.allclose(average["0.weight"], old + 0.25)
    assert int(average["1.num_batches_tracked"]) == 7
    blended = blend(
        {"w": torch.tensor([0.0]), "n": torch.tensor(1)}, {"w": torch.tensor([2.0]), "n": torch.tensor(5)}, 0.25
    )
    assert blended["w"].tolist() == [0.5]
    assert int(blended["n"]) == 5
