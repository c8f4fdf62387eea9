"""What happens to an ECG in an amplifier, a recorder and a technician's hands: cut peaks, fewer values, swapped cables, noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from rlab.errors import OptionError
from rlab.filters.base import SIGNALS, Filter, built_in
from rlab.filters.signal import RATE

REVERSAL = "limb_lead_reversal"
# What each limb lead shows after two cables were swapped: lead I is LA - RA, II is LL - RA, III is LL - LA. The chest leads
# stay, because the mean of the three limb electrodes does.
_SWAPS = {
    REVERSAL: {"I": "-I", "II": "III", "III": "II", "AVR": "AVL", "AVL": "AVR"},
    f"{REVERSAL}_ra_ll": {"I": "-III", "II": "-II", "III": "-I", "AVR": "AVF", "AVF": "AVR"},
    f"{REVERSAL}_la_ll": {"I": "II", "II": "I", "III": "-III", "AVL": "AVF", "AVF": "AVL"},
}
_CABLES = dict(zip(_SWAPS, ("right and left arm", "right arm and left leg", "left arm and left leg"), strict=True))


@built_in((0.1, 0.25, 0.5, 0.75, 0.9), ranks=SIGNALS)
def saturation(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Cut the values of each lead of x: (b, c, time) that are further from its median than 1 - severity of the furthest."""
    middle, left = x.median(-1, keepdim=True).values, max(0.0, 1 - severity)
    low, high = (middle + left * (end - middle) for end in (x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)))
    return x.clamp(low, high)


@built_in((2.0, 3.0, 4.0, 6.0, 8.0), ranks=SIGNALS, default=2.0, clip=True, whole=True)
def resampling(x: Tensor, severity: float, generator: Generator) -> Tensor:
    """Average x: (b, c, time) over `severity` values each and interpolate linearly between the means."""
    few = max(1, round(x.shape[-1] / severity))
    return F.interpolate(F.adaptive_avg_pool1d(x, few), x.shape[-1], mode="linear")


@built_in((0.1, 0.25, 0.5, 1.0, 2.0), ranks=SIGNALS, clip=True, unit="Hz", rated=True, whole=True)
def high_pass(x: Tensor, severity: float, generator: Generator, rate: float = RATE) -> Tensor:
    """Pass x: (b, c, time) through a filter of one pole, forwards in time; the median of each lead stays."""
    length, middle = x.shape[-1], x.median(-1, keepdim=True).values
    step = 1 - math.exp(-2 * math.pi * severity / rate)
    response = step * (1 - step) ** torch.arange(length, dtype=x.dtype, device=x.device)
    spectrum: Tensor = torch.fft.rfft(x - middle, n=2 * length) * torch.fft.rfft(response, n=2 * length)
    slow: Tensor = torch.fft.irfft(spectrum, n=2 * length)[..., :length]
    return x - slow


def reversal_filters(leads: Sequence[str]) -> dict[str, Filter]:
    """Swaps of two limb cables, by name, for records with these leads; none if a lead that they need is not there."""
    at = {lead.upper(): row for row, lead in enumerate(leads)}
    filters = {}
    for name, swap in _SWAPS.items():
        shown = {lead: source for lead, source in swap.items() if lead in at}
        if shown and all(source.strip("-") in at for source in shown.values()):
            rows, signs = list(range(len(leads))), [1.0] * len(leads)
            for lead, source in shown.items():
                rows[at[lead]], signs[at[lead]] = at[source.strip("-")], -1.0 if source.startswith("-") else 1.0
            apply, about = partial(_swap, rows=rows, signs=signs), f"cables of {_CABLES[name]} swapped"
            filters[name] = Filter(name, apply, (1.0,), SIGNALS, clip=True, about=about, rowwise=True, whole=True)
    return filters


def _swap(x: Tensor, severity: float, generator: Generator, rows: Sequence[int], signs: Sequence[float]) -> Tensor:
    """Show the leads of x: (b, c, time) in other rows, some of them upside down."""
    return x[:, list(rows)] * torch.tensor(signs, dtype=x.dtype, device=x.device)[:, None]


def recorded_filter(name: str, noise: Tensor) -> Filter:
    """A filter that adds random excerpts of recorded `noise` (channels, time), which has the rate of the data."""
    about = "recorded noise; severity is its RMS, also in mV or dB of SNR"
    return Filter(
        name, partial(add_excerpt, noise=noise), (0.02, 0.05, 0.1, 0.2, 0.4), SIGNALS, clip=True, about=about, additive=True
    )  # fmt: skip


def add_excerpt(x: Tensor, severity: float, generator: Generator, noise: Tensor) -> Tensor:
    """Add an excerpt with an RMS of `severity` to x: (b, c, time), from the same time in all leads, each from a random channel."""
    length, spare = x.shape[-1], noise.shape[-1] - x.shape[-1]
    if spare < 0:
        raise OptionError(f"the recorded noise has {noise.shape[-1]} values for signals of {length}: record more of it")
    start = torch.randint(spare + 1, (len(x), 1, 1), generator=generator, device=generator.device)
    channel = torch.randint(len(noise), (*x.shape[:2], 1), generator=generator, device=generator.device)
    sign = torch.randint(2, (*x.shape[:2], 1), generator=generator, device=generator.device) * 2 - 1
    chosen = noise.to(x)[channel, start + torch.arange(length, device=x.device)]
    pattern = sign * (chosen - chosen.mean(-1, keepdim=True))
    loudness = pattern.square().mean((1, 2), keepdim=True).sqrt()
    return x + severity * pattern / loudness.clamp(min=1e-12)
