"""Sentences about a map: the waves of a beat, the frames of a clip, and every settled region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.present.waves import WAVES, waves

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

HALF = 0.5  # share of the positive map that the important frames hold


def wave_shares(heat: Tensor, r_peaks: Sequence[int], rate: float) -> dict[str, float]:
    """heat (time,) -> the share of the positive map in each wave of a beat, and elsewhere."""
    values, left = heat.clamp(min=0).double(), torch.ones(len(heat), dtype=torch.bool)
    total, shares = float(values.sum().clamp(min=1e-12)), dict.fromkeys(WAVES, 0.0)
    for name, cut in waves(r_peaks, rate, len(heat)):
        shares[name] += float((values[cut] * left[cut]).sum()) / total  # the earlier of two overlapping windows counts
        left[cut] = False
    return {**shares, "elsewhere": float(values[left].sum()) / total}


def frame_shares(heat: Tensor) -> Tensor:
    """heat (t, h, w) -> (t,): the share of the positive map in each frame."""
    values = heat.clamp(min=0).double().flatten(1).sum(1)
    return values / values.sum().clamp(min=1e-12)


def frames_that_matter(shares: Tensor, least: float = HALF) -> tuple[range, float]:
    """(t,) -> the shortest run of frames with at least this share, and its share."""
    upto = torch.cat([shares.new_zeros(1), shares.cumsum(0)])
    for length in range(1, len(shares) + 1):
        held = upto[length:] - upto[:-length]
        first = int(held.argmax())
        if held[first] >= least:
            return range(first, first + length), float(held[first])
    return range(len(shares)), float(upto[-1])


def waves_of(explanation: Explanation, batch: Batch, row: int) -> dict[str, float]:
    """The share of the map in each wave; empty if the data are not beats."""
    if batch.kind != "signal" or not batch.rate or batch.r_peaks is None or not batch.r_peaks[row]:
        return {}
    return wave_shares(explanation.maps[row], batch.r_peaks[row], batch.rate)


def statements(explanation: Explanation, batch: Batch, row: int) -> list[str]:
    """Sentences about one sample, the most important first."""
    name, lines = batch.label_name(int(explanation.labels[row])), []
    shares = waves_of(explanation, batch, row) if explanation.waves is None else {}
    if shares:
        order = sorted(shares, key=lambda wave: -shares[wave])
        parts = [f"{shares[wave]:.0%} {'' if wave == 'elsewhere' else 'in '}{wave}" for wave in order]
        lines.append(f"the evidence for {name} lies {', '.join(parts)}")
    if batch.kind == "video":
        run, held = frames_that_matter(frame_shares(explanation.maps[row]))
        lines.append(
            f"frames {run.start + 1} to {run.stop} of {batch.size[0]} hold {held:.0%} of the evidence for {name}"
        )
    if explanation.regions is not None:
        lines += explanation.regions.statements(row, name, batch.rate if batch.kind == "signal" else None)
    if explanation.waves is not None:
        lines += explanation.waves.statements(row, name)
    return lines
