"""Filters for signals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import signal as scipy_signal

from rlab.filters import Palette, find
from tests.filters.samples import seeded, signals

(WANDER,) = find("baseline_wander", 2)
(MUSCLE,) = find("muscle_noise", 2)
(DROPOUT,) = find("lead_dropout", 2)


@pytest.mark.parametrize("rate", [125, 250, 360, 1000])
@pytest.mark.parametrize("mains", [50, 60])
def test_hum_is_one_line_in_the_spectrum_at_any_rate(mains: int, rate: int):
    (hum,) = find(f"powerline_hum{mains}", 2)
    length = 10 * rate
    change = (hum.at_rate(rate)(torch.full((2, 2, length), 0.5), 0.1, seeded()) - 0.5).double()
    spectrum = np.abs(np.fft.rfft(change.numpy())) / (length / 2)
    hertz = np.fft.rfftfreq(length, 1 / rate)
    assert hertz[spectrum.argmax(-1)] == pytest.approx(np.full((2, 2), mains))
    np.testing.assert_allclose(spectrum.max(-1), 0.1, rtol=1e-3)
    assert np.sort(spectrum, -1)[..., -2].max() < 1e-3
    torch.testing.assert_close(change[:, 0], change[:, 1])
    assert not torch.allclose(change[0], change[1], atol=1e-3), "two recordings share their phase"


def test_hum_includes_both_mains_frequencies():
    assert [one.name for one in find("powerline_hum", 1)] == ["powerline_hum50", "powerline_hum60"]


@pytest.mark.parametrize("length", [250, 3600])
def test_wander_is_slow_and_no_larger_than_the_severity(length: int):
    drift = (WANDER(torch.zeros(4, 2, length), 0.2, seeded())).double()
    assert drift.abs().max() <= 0.2
    assert drift.std(-1).min() > 0.02
    fastest = 2 * math.pi * 0.2 * (0.5 * 0.5 + 0.3 * 1 + 0.2 * 2) / (length - 1)
    assert drift.diff().abs().max() <= fastest * 1.01


@pytest.mark.parametrize("rate", [100.0, 500.0])
def test_wander_counts_in_hertz_if_the_rate_is_known(rate: float):
    """A minute of wander has 3, 6 and 12 cycles."""
    drift = WANDER.at_rate(rate)(torch.zeros(1, 1, round(60 * rate)), 1.0, seeded())[0, 0].double().numpy()
    power = np.abs(np.fft.rfft(drift)) ** 2
    assert sorted(power.argsort()[-3:]) == [3, 6, 12]
    assert power[[3, 6, 12]].sum() / power[1:].sum() > 0.99


def test_leads_wander_independently():
    leads = WANDER(torch.zeros(2, 2, 500), 0.2, seeded()).flatten(0, 1)
    assert min((leads[i] - leads[j]).abs().max() for i in range(4) for j in range(i)) > 0.01


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


@pytest.mark.parametrize("rate", [250, 360, 1000])
def test_muscle_noise_has_the_spectrum_of_muscles_at_any_rate(rate: int):
    noise = MUSCLE.at_rate(rate)(torch.zeros(20, 2, 20 * rate), 0.1, seeded()).double().numpy()
    hertz, power = scipy_signal.welch(noise, fs=rate, nperseg=2 * rate)
    power = power.mean((0, 1))
    inside = (hertz >= 5) & (hertz <= min(150, rate / 2))
    assert power[inside].sum() / power.sum() > 0.99
    assert 15 <= hertz[power.argmax()] <= 40
    model = hertz**2 / (hertz**2 + 30**2) ** 3
    middle = (hertz >= 8) & (hertz <= min(145, rate / 2 - 5))
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


def test_a_single_lead_drops():
    x = signals()[:, :1]
    assert (DROPOUT(x, 0.1, seeded()).diff() == 0).all()


(MOTION,) = find("electrode_motion", 2)
(SMOOTHING,) = find("smoothing", 2)


@pytest.mark.parametrize("rate", [100.0, 360.0, 500.0])
def test_a_jump_comes_quickly_and_fades_slowly(rate: float):
    motion = MOTION.at_rate(rate)
    change = motion(torch.zeros(40, 2, round(0.72 * rate)), 0.3, seeded()).double()
    assert change.abs().amax((1, 2)).tolist() == pytest.approx([0.3] * 40, rel=1e-4)  # the largest of all leads
    assert torch.equal(change[..., 0], torch.zeros(40, 2, dtype=torch.float64))
    strong = change.abs().amax(1)
    quick = (strong.argmax(1) - (strong > 0).double().argmax(1)) / rate
    assert quick.max() <= 0.1
    left = strong[:, -1] / strong.amax(1)
    assert (left > math.exp(-0.72 / 0.1) - 1e-3).all()
    assert not torch.allclose(change[0, 0], change[0, 1], atol=1e-3), "each lead has its own size"


def test_long_signals_have_as_many_jumps_as_seconds():
    one = MOTION(torch.zeros(1, 1, 3600), 1.0, seeded(3))[0, 0]
    jumps = one.diff().abs() > 0.02
    starts = (jumps[1:] & ~jumps[:-1]).sum()
    assert 6 <= starts <= 14


def test_amplitude_scaling_leaves_the_baseline_and_scales_the_rest():
    louder, quieter = find("amplitude_scaling", 2)
    x = signals() - 0.4
    middle = x.median(-1, keepdim=True).values
    torch.testing.assert_close(louder(x, 0.3, seeded()) - middle, 1.3 * (x - middle))
    torch.testing.assert_close(quieter(x, 0.7, seeded()) - middle, 0.3 * (x - middle))
    assert (louder.name, quieter.name) == ("amplitude_scaling+", "amplitude_scaling-")


@pytest.mark.parametrize("rate", [250.0, 500.0])
def test_smoothing_counts_in_milliseconds_at_any_rate(rate: float):
    """A sine of 17 Hz under a Gaussian of 8 ms has exp(-2 (pi 17 0.008)^2) of its height: half its power."""
    time = torch.arange(round(2 * rate)) / rate
    wave = torch.sin(2 * math.pi * 17 * time)[None, None]
    smooth = SMOOTHING.at_rate(rate)(wave, 8.0, seeded())[..., 100:-100]
    expected = math.exp(-2 * (math.pi * 17 * 0.008) ** 2)
    assert float(smooth.abs().max()) == pytest.approx(expected, abs=0.02)
    assert expected**2 == pytest.approx(0.5, abs=0.02)


def test_smoothing_shows_its_unit():
    names = Palette.of(["smoothing@8ms", "smoothing@4,16", "smoothing"], 1, 1).names
    assert names == ("smoothing@8ms", "smoothing@4ms", "smoothing@16ms", "smoothing@8ms")


def test_spectrum_of_motion_is_slow():
    change = MOTION(torch.zeros(20, 1, 3600), 1.0, seeded()).double().numpy()[:, 0]
    power = (np.abs(np.fft.rfft(change * np.hanning(3600))) ** 2).mean(0)
    hertz = np.fft.rfftfreq(3600, 1 / 360)
    assert power[hertz <= 10].sum() / power.sum() > 0.95
