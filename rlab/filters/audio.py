"""What happens to sound between a mouth and a file: noise behind it, echoes, a narrow line, lost packets, few bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlab.filters.base import SIGNALS, Chance, added, built_in, draw

RATE = 16_000.0  # Hz, for sound of unknown rate
_PACKET = 0.02  # seconds, as in telephony
_DECAY, _DELAY = 0.5, 0.005  # seconds in which echoes fall by 60 dB, and after which the first arrives
_BITS, _MU = 12, 255.0  # bits before the loss, and the curve of mu-law
_LOWEST = 20.0  # Hz; below, pink noise is flat


@added((0.01, 0.03, 0.1, 0.2, 0.4))
def background_noise(x: Tensor, severity: float, generator: Chance, rate: float = RATE) -> Tensor:
    """Add noise whose power falls with frequency, the same in all channels of x: (b, c, time)."""
    length = x.shape[-1]
    white = draw(torch.randn, (len(x), 1, length), generator, x.dtype)
    hertz: Tensor = torch.fft.rfftfreq(length, 1 / rate, dtype=torch.float64)
    gain = (hertz.clamp(min=_LOWEST) ** -0.5).to(x)
    gain[0] = 0.0
    noise: Tensor = torch.fft.irfft(torch.fft.rfft(white) * gain, n=length)
    return x + severity * noise / noise.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-12)


@added((0.1, 0.2, 0.4, 0.8, 1.6))
def reverberation(x: Tensor, severity: float, generator: Chance, rate: float = RATE) -> Tensor:
    """Add x: (b, c, time), without its mean, convolved with noise that decays; as loud as the sound at severity 1."""
    length, middle = x.shape[-1], x.mean(-1, keepdim=True)
    time = torch.arange(length, dtype=x.dtype, device=x.device) / rate
    fall = torch.where(time >= _DELAY, 10 ** (-3 * time / _DECAY), 0.0)
    room = draw(torch.randn, (len(x), 1, length), generator, x.dtype) * fall
    spectrum: Tensor = torch.fft.rfft(x - middle, n=2 * length) * torch.fft.rfft(room, n=2 * length)
    echo: Tensor = torch.fft.irfft(spectrum, n=2 * length)[..., :length]
    loud = (x - middle).norm(dim=-1, keepdim=True) / echo.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return x + severity * loud * echo


@built_in((0.5, 1.0, 1.5, 2.0, 3.0), ranks=SIGNALS, clip=True)
def band_limit(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Remove all frequencies of x: (b, c, time) above the highest one divided by 2 ** severity."""
    spectrum: Tensor = torch.fft.rfft(x)
    kept = math.ceil(spectrum.shape[-1] * 2.0**-severity)
    spectrum[..., max(1, kept) :] = 0
    limited: Tensor = torch.fft.irfft(spectrum, n=x.shape[-1])
    return limited


@built_in((0.1, 0.25, 0.5, 0.75, 1.0), ranks=SIGNALS, default=1.0, rated=True)
def packet_loss(x: Tensor, severity: float, generator: Chance, rate: float = RATE) -> Tensor:
    """Set random packets of x: (b, c, time) to the mean, which is silence; a stronger severity includes a weaker one."""
    width = max(1, round(_PACKET * rate))
    count = -(-x.shape[-1] // width)
    lost = draw(torch.rand, (len(x), 1, count), generator, x.dtype) < severity
    lost = lost.repeat_interleave(width, -1)[..., : x.shape[-1]]
    return torch.where(lost, x.mean(-1, keepdim=True), x)


@built_in((4.0, 6.0, 8.0, 9.0, 10.0), ranks=SIGNALS, clip=True)
def few_bits(x: Tensor, severity: float, generator: Chance) -> Tensor:
    """Round x: (b, c, time), without its mean and as a share of its peak, on the curve of G.711."""
    middle = x.mean(-1, keepdim=True)
    sound = x - middle
    peak = sound.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    levels = 2.0 ** (max(1.0, _BITS - severity) - 1)
    bent = (1 + _MU * (sound / peak).abs()).log() / math.log1p(_MU)
    coarse = ((bent * levels).round() / levels * math.log1p(_MU)).expm1() / _MU
    return middle + sound.sign() * coarse * peak
