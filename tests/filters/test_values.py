"""Light and noise."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from rlab.filters import Entry, Palette, find
from tests.filters.samples import RANKS, images, inputs, millivolts, seeded


@pytest.mark.parametrize("rank", RANKS)
def test_illuminate_adds_and_takes_away_the_severity(rank: int):
    x = inputs(rank)
    brighter, darker = find("illuminate", x.shape[1])
    torch.testing.assert_close(brighter(x, 0.2, seeded()), x + 0.2)
    torch.testing.assert_close(darker(x, 0.2, seeded()), x - 0.2)


def test_channel_shift_of_colours_has_every_pattern_of_signs():
    members = find("channel_shift", 3)
    assert [one.name.removeprefix("channel_shift") for one in members] == [
        *("+++", "++-", "+-+", "+--", "-++", "-+-", "--+", "---")
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


(NOISE,) = find("gaussian_noise", 3)
(SALT,) = find("salt_and_pepper", 3)
(DEAD,) = find("dead_pixel", 3)


@pytest.mark.parametrize("shape", [(2, 3, 20_000), (2, 3, 100, 200), (2, 3, 10, 40, 50)])
def test_noise_has_mean_zero_and_the_severity_as_its_deviation(shape: tuple[int, ...]):
    noise = NOISE(torch.full(shape, 0.5), 0.2, seeded()) - 0.5
    assert noise.std().item() == pytest.approx(0.2, rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=0.003)
    channels = torch.corrcoef(noise[0].flatten(1))
    assert (channels - torch.eye(3)).abs().max() < 0.03, "channels share their noise"


@pytest.mark.parametrize("severity", [0.03, 0.4])
def test_salt_and_pepper_hit_that_share_of_pixels_half_of_them_white(severity: float):
    x = torch.full((1, 3, 300, 300), 0.5)
    result = Palette((Entry(SALT, severity),)).bank(x, (0, 1), [0])[0, 1]
    hit = result != 0.5
    assert set(result.unique().tolist()) == {0.0, 0.5, 1.0}
    assert hit.float().mean().item() == pytest.approx(severity, rel=0.05)
    assert (result == 1).sum().item() == pytest.approx(hit.sum().item() / 2, rel=0.05)
    assert torch.equal(hit[0], hit[1])
    assert torch.equal(hit[0], hit[2])


def test_salt_on_a_signal_without_bounds_is_a_spike_of_its_amplitude():
    x = millivolts()
    change = Palette((Entry(SALT, 0.1),)).bank(x, (-torch.inf, torch.inf), [1, 2, 3])[:, 1] - x
    span = x.flatten(1).amax(1) - x.flatten(1).amin(1)
    for row, amplitude in zip(change, span, strict=True):
        spikes = row[row.abs() > 1e-3]
        assert len(spikes)
        torch.testing.assert_close(spikes.abs(), amplitude.expand_as(spikes))


def test_all_pixels_die_by_default():
    assert DEAD.default_severity == 1.0
    assert torch.equal(DEAD(images(), DEAD.default_severity, seeded()), torch.zeros_like(images()))


def test_a_share_of_pixels_dies_and_the_rest_stays():
    x = torch.full((1, 3, 300, 300), 0.7)
    result = DEAD(x, 0.25, seeded())
    assert set(result.unique().tolist()) == {0.0, x[0, 0, 0, 0].item()}
    assert (result == 0).float().mean().item() == pytest.approx(0.25, rel=0.03)
    assert torch.equal(result[:, 0], result[:, 1])


@pytest.mark.parametrize("one", [SALT, DEAD], ids=lambda one: one.name)
def test_pixels_hit_stay_hit_as_severity_grows(one):
    x = images()
    hits = [one(x, severity, seeded(4)) != x for severity in one.severities]
    for weak, strong in pairwise(hits):
        assert not (weak & ~strong).any()
        assert strong.sum() > weak.sum()
