from __future__ import annotations

import pytest
import torch

from rlab.filters import find
from tests.filters.samples import clips, seeded

(FROZEN,) = find("frozen_frame", 3)
(FLICKER,) = find("flicker", 3)


@pytest.mark.parametrize("hold", [2, 4, 8])
def test_every_frame_is_an_earlier_one_held(hold: int):
    x = clips()
    result = FROZEN(x, float(hold), seeded())
    for time in range(x.shape[2]):
        assert torch.equal(result[:, :, time], x[:, :, time - time % hold])


def test_held_longer_than_the_clip_is_its_first_frame():
    x = clips()
    assert torch.equal(FROZEN(x, 32.0, seeded()), x[:, :, :1].expand_as(x))


def test_flicker_moves_every_frame_as_a_whole_by_up_to_the_severity():
    x = torch.full((2, 3, 400, 4, 4), 0.5)
    change = FLICKER(x, 0.2, seeded()) - x
    steps = change[:, 0, :, 0, 0]
    torch.testing.assert_close(change, steps[:, None, :, None, None].expand_as(change))
    assert 0.19 < steps.abs().max() <= 0.2 + 1e-6
    assert steps.mean().abs() < 0.02
    assert steps.std().item() == pytest.approx(0.2 / 3**0.5, rel=0.05)
