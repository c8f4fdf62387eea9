"""What the shortest command does: sound choices by kind of data, so that patch, palette and budget can be left out."""

from __future__ import annotations

import math

from rlab.core.distances import Measure
from rlab.data.batch import Kind, Samples

PALETTES: dict[Kind, tuple[str, ...]] = {
    "signal": ("gaussian_noise", "baseline_wander", "powerline_hum60", "muscle_noise", "gaussian_blur", "dead_pixel"),
    "image": ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate"),
    "video": ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate"),
}
POLICY = "auto"  # the belief search with the shipped prior for the kind of data
DISTANCES: dict[Kind, Measure] = {"signal": "l2", "image": "l2", "video": "map"}  # as the papers measure
BUDGETS: dict[Kind, int] = {"signal": 1000, "image": 1000, "video": 10_000}
_BANK_BYTES, _FLOAT = 2**28, 4  # of one chunk, and of one value


def palette(batch: Samples) -> tuple[str, ...]:
    """That of the kind of data, without mains hum where the sampling rate cannot carry it."""
    slow = batch.kind == "signal" and batch.rate is not None and batch.rate <= 2 * 60
    return tuple(one for one in PALETTES[batch.kind] if not (slow and one.startswith("powerline_hum")))


def patch(batch: Samples) -> tuple[int, ...]:
    """About 16 patches along each axis of an image, 8 along each of a clip, 32 along a signal: the papers' patch sizes."""
    along = {"signal": 32, "image": 16, "video": 8}[batch.kind]
    return tuple(max(1, round(length / along)) for length in batch.size)


def chunk(batch: Samples, entries: int) -> int:
    """Samples that step together: as many as keep the bank within a quarter of a gigabyte, at most 64."""
    one = (entries + 1) * math.prod(batch.shape) * _FLOAT
    return max(1, min(64, _BANK_BYTES // one))
