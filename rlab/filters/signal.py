"""What adds itself to a signal on its way from the skin to the recorder. Each runs once over the whole signal."""

from __future__ import annotations

import math
from functools import cache, partial

import torch
from torch import Generator, Tensor

from rlab.filters.base import Filter, register

RATE = 360.0  # Hz, of signals that do not tell theirs
_WANDER = ((0.5, 0.5), (1.0, 0.3), (2.0, 0.2))  # (cycles a window, share of the amplitude)
_MUSCLE_BAND = (20.0, 150.0)  # Hz
_MUSCLE_CORNERS = (60.0, 120.0)  # Hz
_SIGNALS = frozenset({1})


def baseline_wander(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, time) plus slow waves over the whole window, with phases of their own for each lead."""
    time = torch.linspace(0, 1, x.shape[-1], dtype=x.dtype, device=x.device)
    drift = torch.zeros_like(x)
    for cycles, share in _WANDER:
        phase = torch.rand((*x.shape[:2], 1), generator=generator, device=generator.device, dtype=x.dtype)
        drift += share * torch.sin(2 * math.pi * (cycles * time + phase))
    return x + severity * drift


def powerline_hum(x: Tensor, severity: float, generator: Generator, mains: float, rate: float = RATE) -> Tensor:
    """x: (b, c, time) plus one sine in all leads alike."""
    time = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)
    phase = torch.rand((len(x), 1, 1), generator=generator, device=generator.device, dtype=x.dtype)
    return x + severity * torch.sin(2 * math.pi * (mains / rate * time + phase))


def muscle_noise(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """x: (b, c, time) plus noise of standard deviation `severity` with the spectrum of surface electromyograms."""
    white = torch.randn(x.shape, generator=generator, device=generator.device, dtype=x.dtype)
    gain = _muscle_gain(x.shape[-1], rate).to(x)
    noise: Tensor = torch.fft.irfft(torch.fft.rfft(white) * gain, n=x.shape[-1])
    return x + severity * noise


def _muscle_gain(length: int, rate: float) -> Tensor:
    """(length // 2 + 1,) that keeps white noise's power: the electromyogram model of Shwedyk et al. 1977, in a band."""
    hertz: Tensor = torch.fft.rfftfreq(length, 1 / rate, dtype=torch.float64)
    low, high = _MUSCLE_CORNERS
    gain = hertz * high**2 / ((hertz**2 + low**2).sqrt() * (hertz**2 + high**2))
    gain = gain * ((hertz >= _MUSCLE_BAND[0]) & (hertz <= _MUSCLE_BAND[1]))
    mirrored = torch.cat([gain, gain[1 : (length + 1) // 2]])  # the negative frequencies count as well
    power = mirrored.square().mean()
    return gain / power.sqrt() if power > 0 else gain


def lead_dropout(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """x: (b, c, time), some leads flat at their own mean; those of a weaker severity are among those of a stronger."""
    leads = x.shape[1]
    count = min(leads, max(1, math.ceil(severity * leads - 1e-9)))
    order = torch.rand(x.shape[:2], generator=generator, device=generator.device).argsort(1)
    return torch.where((order < count)[..., None], x.mean(-1, keepdim=True), x)


@cache
def _hum(channels: int) -> tuple[Filter, ...]:
    return tuple(
        Filter(
            name=f"powerline_hum{mains}",
            apply=partial(powerline_hum, mains=float(mains)),
            severities=(0.02, 0.05, 0.1, 0.2, 0.4),
            ranks=_SIGNALS,
            clip=True,
            additive=True,
            rated=True,
            least_rate=2.0 * mains,
            about=f"{mains} Hz mains, the same in all leads; severity is the hum's amplitude, also in mV or dB of SNR",
        )
        for mains in (50, 60)
    )


register(
    Filter(
        name="baseline_wander",
        apply=baseline_wander,
        severities=(0.05, 0.1, 0.2, 0.4, 0.8),
        ranks=_SIGNALS,
        clip=True,
        additive=True,
        about="breathing, half a cycle to two cycles a window; severity is the drift's amplitude, also in mV or dB of SNR",
    )
)
register("powerline_hum", _hum)
register(
    Filter(
        name="muscle_noise",
        apply=muscle_noise,
        severities=(0.02, 0.05, 0.1, 0.2, 0.4),
        ranks=_SIGNALS,
        clip=True,
        additive=True,
        rated=True,
        about="muscles at work, 20 to 150 Hz; severity is the standard deviation, also in mV or dB of SNR",
    )
)
register(
    Filter(
        name="lead_dropout",
        apply=lead_dropout,
        severities=(0.1, 0.25, 0.5, 0.75, 1.0),
        ranks=_SIGNALS,
        clip=True,
        about="an electrode that fell off, its lead flat at the mean; severity is the share of leads, at least one",
    )
)
