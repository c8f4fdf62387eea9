"""Distortions of a signal between the skin and the recorder. Each filter runs once over the whole signal."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Generator, Tensor

from rlab.filters.base import SIGNALS, Filter, added, built_in, built_in_pair, register
from rlab.filters.image import gaussian_blur
from rlab.filters.named import ABOUT

RATE = 360.0  # Hz, for signals of unknown rate
_WANDER = ((0.5, 0.5), (1.0, 0.3), (2.0, 0.2))  # (cycles per window, or per ten seconds, share of the amplitude)
_WANDER_WINDOW = 10.0  # seconds, if the rate is known: 0.05, 0.1 and 0.2 Hz
# Muscle noise, electrode motion and baseline wander follow the recordings of the MIT-BIH Noise Stress Test Database (Moody et
# al. 1984, https://doi.org/10.13026/C2HS3T); tests/filters/test_clinical.py compares amplitudes and spectra.
_MUSCLE_BAND = (5.0, 150.0)  # Hz
_MUSCLE_CORNERS = (30.0, 30.0)  # Hz
_MOVES = 1.0  # electrode movements per second; there is at least one
_RISE, _FADE = 0.02, (0.05, 0.15)  # seconds
_SETTLE, _SETTLING = 2.0, 0.3  # seconds in which the rest of a jump fades, and its share


@added((0.05, 0.1, 0.2, 0.4, 0.8))
def baseline_wander(x: Tensor, severity: float, generator: Generator, rate: float | None = None) -> Tensor:
    """Add slow waves to x: (b, c, time), with separate phases for each lead."""
    end = 1.0 if rate is None else (x.shape[-1] - 1) / rate / _WANDER_WINDOW
    time = torch.linspace(0, end, x.shape[-1], dtype=x.dtype, device=x.device)
    drift = torch.zeros_like(x)
    for cycles, share in _WANDER:
        phase = _uniform(x, (*x.shape[:2], 1), generator)
        drift += share * torch.sin(2 * math.pi * (cycles * time + phase))
    return x + severity * drift


def powerline_hum(x: Tensor, severity: float, generator: Generator, mains: float, rate: float = RATE) -> Tensor:
    """Add the same sine to all leads of x: (b, c, time)."""
    time = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)
    phase = _uniform(x, (len(x), 1, 1), generator)
    return x + severity * torch.sin(2 * math.pi * (mains / rate * time + phase))


@added((0.02, 0.05, 0.1, 0.2, 0.4))
def muscle_noise(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """Add noise with the spectrum of surface electromyograms and standard deviation `severity` to x: (b, c, time)."""
    white = torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype)
    gain = _muscle_gain(x.shape[-1], rate).to(x)
    noise: Tensor = torch.fft.irfft(torch.fft.rfft(white) * gain, n=x.shape[-1])
    return x + severity * noise


def _muscle_gain(length: int, rate: float) -> Tensor:
    """Gain (length // 2 + 1,) of the band-limited model of Shwedyk et al. 1977, scaled to keep the power of white noise."""
    hertz: Tensor = torch.fft.rfftfreq(length, 1 / rate, dtype=torch.float64)
    low, high = _MUSCLE_CORNERS
    gain = hertz * high**2 / ((hertz**2 + low**2).sqrt() * (hertz**2 + high**2))
    gain = gain * ((hertz >= _MUSCLE_BAND[0]) & (hertz <= _MUSCLE_BAND[1]))
    mirrored = torch.cat([gain, gain[1 : (length + 1) // 2]])  # negative frequencies count too
    power = mirrored.square().mean()
    return gain / power.sqrt() if power > 0 else gain


@built_in((0.1, 0.25, 0.5, 0.75, 1.0), ranks=SIGNALS, clip=True)
def lead_dropout(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Set random leads of x: (b, c, time) to their mean; a stronger severity includes the leads of a weaker one."""
    leads = x.shape[1]
    count = min(leads, max(1, math.ceil(severity * leads - 1e-9)))
    order = torch.rand(x.shape[:2], generator=generator, device=generator.device).argsort(1)
    return torch.where((order < count)[..., None], x.mean(-1, keepdim=True), x)


_HUM = tuple(
    Filter(
        name=f"powerline_hum{mains}",
        apply=partial(powerline_hum, mains=float(mains)),
        severities=(0.02, 0.05, 0.1, 0.2, 0.4),
        ranks=SIGNALS,
        clip=True,
        additive=True,
        rated=True,
        least_rate=2.0 * mains,
        about=ABOUT["powerline_hum"],
    )
    for mains in (50, 60)
)
register("powerline_hum", lambda channels: _HUM)


@added((0.05, 0.1, 0.2, 0.4, 0.8))
def electrode_motion(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """Add fading jumps to x: (b, c, time), at the same times in all leads but with separate sizes."""
    count = max(1, round(_MOVES * x.shape[-1] / rate))
    start = _uniform(x, (len(x), 1, count), generator) * 0.8 * x.shape[-1] / rate
    fade = _FADE[0] + (_FADE[1] - _FADE[0]) * _uniform(x, (len(x), 1, count), generator)
    size = 2 * _uniform(x, (*x.shape[:2], count), generator) - 1
    time = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) / rate
    jumps = torch.zeros_like(x)
    for event in range(count):
        since = (time - start[..., event, None]).clamp(min=0)
        left = (1 - _SETTLING) * torch.exp(-since / fade[..., event, None]) + _SETTLING * torch.exp(-since / _SETTLE)
        jumps += size[..., event, None] * (1 - torch.exp(-since / _RISE)) * left
    highest = jumps.abs().flatten(1).amax(1).clamp(min=1e-6).view(-1, 1, 1)
    return x + severity * jumps / highest


def _uniform(x: Tensor, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=x.dtype)


@built_in_pair((0.1, 0.2, 0.3, 0.5, 0.7), ranks=SIGNALS)
def amplitude_scaling(x: Tensor, severity: float, generator: Generator, sign: int) -> Tensor:
    """Scale each lead of x: (b, c, time) around its median, so that the baseline stays."""
    middle = x.median(-1, keepdim=True).values
    return x + sign * severity * (x - middle)


@built_in((2.0, 4.0, 8.0, 16.0, 32.0), ranks=SIGNALS, clip=True, unit="ms", rated=True)
def smoothing(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """Smooth x: (b, c, time) with a Gaussian of `severity` milliseconds."""
    return gaussian_blur(x, severity / 1000 * rate, generator)
