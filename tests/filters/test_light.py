from __future__ import annotations

import pytest
import torch

from rlab.filters import find
from tests.filters.samples import RANKS, images, inputs, seeded


@pytest.mark.parametrize("rank", RANKS)
def test_illuminate_adds_and_takes_away_the_severity(rank: int):
    x = inputs(rank)
    brighter, darker = find("illuminate", x.shape[1])
    torch.testing.assert_close(brighter(x, 0.2, seeded()), x + 0.2)
    torch.testing.assert_close(darker(x, 0.2, seeded()), x - 0.2)


def test_channel_shift_of_colours_has_every_pattern_of_signs():
    members = find("channel_shift", 3)
    assert [one.name.removeprefix("channel_shift") for one in members] == [
        *("+++", "++-", "+-+", "+--", "-++", "-+-", "--+", "---"),
    ]
    change = find("channel_shift+-+", 3)[0](images(), 0.1, seeded()) - images()
    for channel, step in enumerate((0.1, -0.1, 0.1)):
        torch.testing.assert_close(change[:, channel], torch.full_like(change[:, channel], step))


def test_channel_shift_of_many_leads_moves_one_at_a_time():
    members = find("channel_shift", 12)
    assert len(members) == 24
    x = torch.zeros(2, 12, 50)
    change = find("channel_shift-7", 12)[0](x, 0.3, seeded())
    assert (change[:, 6] == -torch.tensor(0.3)).all()
    assert change.count_nonzero() == 2 * 50


def test_one_channel_has_two_shifts():
    assert [one.name for one in find("channel_shift", 1)] == ["channel_shift+", "channel_shift-"]


@pytest.mark.parametrize("rank", RANKS)
def test_contrast_keeps_each_sample_s_mean_and_scales_its_deviation(rank: int):
    x = inputs(rank)
    for one, factor in zip(find("contrast", x.shape[1]), (1.4, 0.6), strict=True):
        result = one(x, 0.4, seeded()).flatten(1)
        torch.testing.assert_close(result.mean(1), x.flatten(1).mean(1))
        torch.testing.assert_close(result.std(1), factor * x.flatten(1).std(1))
