"""What the filters of sound do to a tone, a click and silence."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rlab.core.defaults import palette
from rlab.data.batch import UNBOUNDED, Batch
from rlab.filters.base import snr_db
from rlab.filters.palette import Palette
from rlab.filters.palettes import AUDIO, CLINICAL

RATE, BOUNDS = 16_000.0, (-1.0, 1.0)


def tone(*hertz: float, seconds: float = 0.5) -> Tensor:
    time = torch.arange(round(seconds * RATE)) / RATE
    return torch.stack([0.3 * torch.sin(2 * math.pi * each * time) for each in hertz]).sum(0).expand(2, 1, -1).clone()


def changed(spec: str, x: Tensor) -> Tensor:
    return Palette.of([spec], 1, 1, RATE).bank(x, BOUNDS, [3, 4])[:, 1]


@pytest.mark.parametrize("spec", ["background_noise@20dB", "reverberation@20dB"])
def test_decibels_are_those_of_the_change(spec):
    x = tone(440.0)
    assert snr_db(x, changed(spec, x)).tolist() == pytest.approx([20.0, 20.0], abs=0.1)


def test_background_noise_has_more_power_at_low_frequencies():
    x = tone(440.0)
    power = torch.fft.rfft(changed("background_noise@0.1", x) - x).abs().square().mean((0, 1))
    low, high = power[25:200].mean(), power[2000:].mean()  # 50 to 400 Hz, and above 4 kHz
    assert 10 < float(low / high) < 200


def test_echoes_follow_a_click_and_fade():
    x = torch.zeros(2, 1, 8000)
    x[..., 1000] = 0.9
    echo = (changed("reverberation@0.4", x) - x).abs()[0, 0]
    assert float(echo[:1000].max()) < 1e-3  # none before the sound
    assert float(echo[1100:2000].mean()) > 3 * float(echo[6000:7000].mean())


def test_a_narrow_band_keeps_the_low_tone_only():
    x = tone(440.0, 6000.0)
    assert torch.allclose(changed("band_limit@1.2", x), tone(440.0), atol=0.02)


def test_lost_packets_are_silent():
    x = tone(440.0)
    kept = changed("packet_loss@0.5", x).view(2, -1, 320)  # 20 ms
    silent = (kept.abs().amax(2) < 1e-3).float().mean(1)
    assert ((silent > 0.2) & (silent < 0.8)).all()
    whole = ((kept - x.view(2, -1, 320)).abs() < 1e-5).all(2) | (kept.abs().amax(2) < 1e-3)
    assert whole.all()


def test_few_bits_are_few_values():
    counts = [len((1e4 * changed(f"few_bits@{lost}", tone(440.0))[0]).round().unique()) for lost in (8, 10)]
    assert 5 < counts[0] <= 17
    assert 2 < counts[1] <= 5


def test_default_palettes_of_signals():
    x = torch.zeros(1, 1, 100)
    y = torch.tensor([0])
    assert palette(Batch(x, y, bounds=BOUNDS, rate=RATE)) == AUDIO
    assert palette(Batch(x, y, bounds=UNBOUNDED, rate=500.0, unit="mV"))[:2] == CLINICAL[:2]
    assert palette(Batch(x, y, bounds=UNBOUNDED, rate=500.0)) != AUDIO
    assert palette(Batch(x, y, bounds=UNBOUNDED)) != AUDIO
