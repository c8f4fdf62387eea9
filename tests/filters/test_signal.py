from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import signal as scipy_signal

from rlab.filters import find
from tests.filters.samples import seeded, signals

(WANDER,) = find("baseline_wander", 2)
(MUSCLE,) = find("muscle_noise", 2)
(DROPOUT,) = find("lead_dropout", 2)


@pytest.mark.parametrize("mains", [50, 60])
def test_hum_is_one_line_in_the_spectrum(mains: int):
    (hum,) = find(f"powerline_hum{mains}", 2)
    change = (hum(torch.full((2, 2, 3600), 0.5), 0.1, seeded()) - 0.5).double()
    spectrum = np.abs(np.fft.rfft(change.numpy())) / 1800
    hertz = np.fft.rfftfreq(3600, 1 / 360)
    assert (hertz[spectrum.argmax(-1)] == mains).all()
    np.testing.assert_allclose(spectrum.max(-1), 0.1, rtol=1e-3)
    assert np.sort(spectrum, -1)[..., -2].max() < 1e-3
    torch.testing.assert_close(change[:, 0], change[:, 1])
    assert not torch.allclose(change[0], change[1], atol=1e-3), "two recordings share their phase"


def test_hum_stands_for_both_mains():
    assert [one.name for one in find("powerline_hum", 1)] == ["powerline_hum50", "powerline_hum60"]


@pytest.mark.parametrize("length", [250, 3600])
def test_wander_is_slow_and_no_larger_than_the_severity(length: int):
    drift = (WANDER(torch.zeros(4, 2, length), 0.2, seeded())).double()
    assert drift.abs().max() <= 0.2
    assert drift.std(-1).min() > 0.02
    fastest = 2 * math.pi * 0.2 * (0.5 * 0.5 + 0.3 * 1 + 0.2 * 2) / (length - 1)
    assert drift.diff().abs().max() <= fastest * 1.01


def test_every_lead_wanders_in_its_own_way():
    ways = WANDER(torch.zeros(2, 2, 500), 0.2, seeded()).flatten(0, 1)
    assert min((ways[i] - ways[j]).abs().max() for i in range(4) for j in range(i)) > 0.01


def test_wander_of_ten_seconds_lies_below_half_a_hertz():
    drift = WANDER(torch.zeros(4, 2, 3600), 0.2, seeded()).double().numpy()
    windowed = (drift - drift.mean(-1, keepdims=True)) * np.hanning(3600)
    power = np.abs(np.fft.rfft(windowed)) ** 2
    hertz = np.fft.rfftfreq(3600, 1 / 360)
    assert (power[..., hertz < 0.5].sum(-1) / power.sum(-1)).min() > 0.999


@pytest.mark.parametrize("length", [10, 101, 3600])
def test_muscle_noise_has_the_severity_as_its_deviation(length: int):
    noise = MUSCLE(torch.zeros(max(100, 100_000 // length), 2, length), 0.1, seeded())
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)


def test_muscle_noise_has_the_spectrum_of_muscles():
    noise = MUSCLE(torch.zeros(20, 2, 7200), 0.1, seeded()).double().numpy()
    hertz, power = scipy_signal.welch(noise, fs=360, nperseg=720)
    power = power.mean((0, 1))
    inside = (hertz >= 20) & (hertz <= 150)
    assert power[inside].sum() / power.sum() > 0.99
    assert 40 <= hertz[power.argmax()] <= 90
    model = hertz**2 / ((hertz**2 + 60**2) * (hertz**2 + 120**2) ** 2)
    middle = (hertz >= 25) & (hertz <= 145)
    ratio = power[middle] / model[middle]
    assert ratio.std() / ratio.mean() < 0.15


def test_a_dropped_lead_is_flat_at_its_mean_and_the_others_stay():
    x = torch.cat([signals()] * 6, 1)
    for severity, dropped in ((0.01, 1), (0.25, 3), (0.5, 6), (1.0, 12)):
        result = DROPOUT(x, severity, seeded(2))
        flat = (result == result[..., :1]).all(-1)
        assert (flat.sum(1) == dropped).all()
        assert torch.equal(result[~flat], x[~flat])
        torch.testing.assert_close(result[flat][:, 0], x[flat].mean(-1))


def test_leads_that_dropped_stay_dropped_as_severity_grows():
    x = torch.cat([signals()] * 6, 1)
    sets = [(DROPOUT(x, severity, seeded(5)) != x).any(-1) for severity in DROPOUT.severities]
    for weak, strong in pairwise(sets):
        assert not (weak & ~strong).any()


def test_the_only_lead_drops():
    x = signals()[:, :1]
    assert (DROPOUT(x, 0.1, seeded()).diff() == 0).all()
