"""Electrodes and recorders, by what they say they do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rlab.filters import Palette, find
from tests.filters.samples import seeded, signals

(MOTION,) = find("electrode_motion", 2)
(SMOOTHING,) = find("smoothing", 2)


@pytest.mark.parametrize("rate", [100.0, 360.0, 500.0])
def test_a_jerk_comes_quickly_and_fades_slowly(rate: float):
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


def test_long_signals_have_as_many_jerks_as_seconds():
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


def test_smoothing_says_its_unit():
    assert Palette.of(["smoothing@8ms", "smoothing@4,16", "smoothing"], 1, 1).names == (
        "smoothing@8ms",
        "smoothing@4ms",
        "smoothing@16ms",
        "smoothing@8ms",
    )


def test_spectrum_of_motion_is_slow():
    change = MOTION(torch.zeros(20, 1, 3600), 1.0, seeded()).double().numpy()[:, 0]
    power = (np.abs(np.fft.rfft(change * np.hanning(3600))) ** 2).mean(0)
    hertz = np.fft.rfftfreq(3600, 1 / 360)
    assert power[hertz <= 10].sum() / power.sum() > 0.95
