"""Sentences about maps and scores, and the shares of a map in the waves of a beat or the frames of a clip."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.present.waves import WAVES, waves

HALF = 0.5  # share of the positive map that the important frames hold
PLACES = (*WAVES, "elsewhere")
IN_PLACES = (*(f"in {wave}" for wave in WAVES), "elsewhere")
LEGEND = (
    "Each map lies over its input: the stronger the colour, the more the decision depends on that place according to the method. "
    "It is paler where the method is less sure. A line, or a bar below a signal, marks the mask and the ground truth, if any."
)
ATTACK_MASK = (
    "The method mask shows the patches that an attack changed: enough to flip the decision, but not where the model looks. In our "
    "benchmark on ECG beats such masks overlap the true place badly (Dice 0.14, belief 0.49). For an explanation, use belief."
)
RULES = (
    "Dice, IoU: overlap of the mask and the ground truth. Dice of the map: that of the map itself, cut by the same rule; some "
    "methods first spread it over places that look alike, which uses only the input. Pointing: whether the map's highest point "
    "lies inside the ground truth. Energy: the share of the map inside. Deletion (lower is better) and insertion: area under the "
    "class's probability as the highest points are blurred, or shown. Stability: rank correlation between two seeds. Sanity: rank "
    "correlation with the map of the same model with shuffled weights; near 1 means that the map does not depend on the model. "
    "Queries: rows per sample that reached the model for the map, including the clean prediction but not the rows for scores."
)
AGAINST = (
    "A map that does not beat middle, which ignores the model, shows nothing in this score: its interval includes 0 or lies on "
    "the wrong side, above 0 for deletion and below 0 for the others."
)


def shares_in_waves(maps: Tensor, batch: Batch) -> Tensor | None:
    """Maps (n, time) -> (n, 4): the share of the positive map in each of PLACES; None if the data are not beats.

    The earlier of two overlapping windows counts; a sample without R peaks has NaN.
    """
    if batch.kind != "signal" or not batch.rate or batch.r_peaks is None:
        return None
    shares = torch.full((len(maps), len(PLACES)), torch.nan, dtype=torch.float64)
    for own, heat, peaks in zip(shares, maps.clamp(min=0).double(), batch.r_peaks, strict=True):
        if not peaks:
            continue
        place = torch.full((len(heat),), len(WAVES))
        for name, cut in reversed(waves(peaks, batch.rate, len(heat))):
            place[cut] = PLACES.index(name)
        own[:] = torch.zeros_like(own).index_add_(0, place, heat) / heat.sum().clamp(min=1e-12)
    return shares


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
