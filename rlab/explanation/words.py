"""What a map says, in words: of a beat's waves, of a clip's frames, and of every region that is settled."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.waves import wave_shares

HALF = 0.5  # of what speaks for the class: the frames that matter hold as much


def frame_shares(heat: Tensor) -> Tensor:
    """heat (t, h, w) -> (t,): the share of what speaks for the class in each frame."""
    values = heat.clamp(min=0).double().flatten(1).sum(1)
    return values / values.sum().clamp(min=1e-12)


def frames_that_matter(shares: Tensor, least: float = HALF) -> tuple[range, float]:
    """(t,) -> the shortest run of frames that holds at least this share, and the share that it holds."""
    upto = torch.cat([shares.new_zeros(1), shares.cumsum(0)])
    for length in range(1, len(shares) + 1):
        held = upto[length:] - upto[:-length]
        first = int(held.argmax())
        if held[first] >= least:
            return range(first, first + length), float(held[first])
    return range(len(shares)), float(upto[-1])


def waves_of(explanation: Explanation, batch: Batch, row: int) -> dict[str, float]:
    """The share of the map in each wave of a beat; nothing where the data are no beats."""
    if batch.kind != "signal" or not batch.rate or batch.r_peaks is None or not batch.r_peaks[row]:
        return {}
    return wave_shares(explanation.maps[row], batch.r_peaks[row], batch.rate)


def statements(explanation: Explanation, batch: Batch, row: int) -> list[str]:
    """Sentences about one sample, the most telling first."""
    name, said = batch.label_name(int(explanation.labels[row])), []
    shares = waves_of(explanation, batch, row)
    if shares:
        order = sorted(shares, key=lambda wave: -shares[wave])
        parts = [f"{shares[wave]:.0%} {'' if wave == 'elsewhere' else 'in '}{wave}" for wave in order]
        said.append(f"what speaks for {name} lies {', '.join(parts)}")
    if batch.kind == "video":
        run, held = frames_that_matter(frame_shares(explanation.maps[row]))
        said.append(f"frames {run.start}-{run.stop - 1} of {batch.size[0]} hold {held:.0%} of what speaks for {name}")
    if explanation.regions is not None:
        said += explanation.regions.statements(row, name, batch.rate if batch.kind == "signal" else None)
    return said
