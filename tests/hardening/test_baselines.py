"""AugMix: its operations by hand, and its strength."""

from __future__ import annotations

import pytest
import torch

from rlab.hardening.baselines import AugMix, coarser, equalised, moved, stretched
from tests.hardening.toys import shortcut
from tests.helpers import RANKS


def test_operations_on_pictures_by_hand() -> None:
    x = torch.tensor([0.2, 0.4, 0.4, 0.6]).view(1, 1, 2, 2)
    assert stretched(x).flatten().tolist() == pytest.approx([0.0, 0.5, 0.5, 1.0], abs=1e-6)
    assert equalised(x).flatten().tolist() == pytest.approx([0.0, 1 / 3, 1 / 3, 1.0], abs=1e-6)
    assert coarser(x, torch.tensor(1.0)).flatten().tolist() == [0.0, 0.0, 0.0, 0.5]
    shifted = moved(x, torch.tensor([1.0]))  # by half the width, to the left
    assert shifted.flatten().tolist() == pytest.approx([0.4, 0.0, 0.6, 0.0], abs=1e-5)
    assert torch.allclose(moved(x, torch.zeros(1)), x, atol=1e-6)


@pytest.mark.parametrize("rank", RANKS)
def test_augmix_changes_every_row_differently_and_keeps_most_of_it(rank: int) -> None:
    toy = shortcut(rank, n=32)
    x = toy.batch.x
    new = AugMix((0.0, 1.0)).make(toy.victim, x, toy.batch.y, 3)
    change = (new - x).flatten(1).norm(dim=1)
    assert (change > 0).float().mean() > 0.9
    assert change.unique().numel() > 16
    assert change.mean() < 0.7 * (x - x.mean(0)).flatten(1).norm(dim=1).mean() + x.flatten(1).norm(dim=1).mean() * 0.3
    assert not toy.victim.rows  # AugMix does not query the model
