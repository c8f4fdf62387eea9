"""Default palette, patch, distance, budget and chunk by kind of data."""

from __future__ import annotations

import math

from rlab.core.channels import TOGETHER, TWELVE, is_twelve_lead
from rlab.core.distances import Measure
from rlab.data.batch import Kind, Samples
from rlab.data.fields import free_bytes
from rlab.errors import OptionError
from rlab.filters.palettes import AUDIO, is_audio, is_ecg, named_palette

PALETTES: dict[Kind, tuple[str, ...]] = {
    "signal": ("gaussian_noise", "baseline_wander", "powerline_hum60", "muscle_noise", "gaussian_blur", "dropout"),
    "image": ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate"),
    "video": ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate"),
}
TABLE = ("gaussian_noise", "dropout")  # for values in a range and without a rate
POLICY = "auto"  # the belief search with the shipped prior for the kind of data
DISTANCES: dict[Kind, Measure] = {"signal": "l2", "image": "l2", "video": "map"}  # as in the papers
BUDGETS: dict[Kind, int] = {"signal": 1000, "image": 1000, "video": 10_000}
_BANK_BYTES, _FLOAT = 2**28, 4  # bytes of a chunk's bank, and of a value


def palette(batch: Samples) -> tuple[str, ...]:
    """Return the default palette: clinical for ECG, audio for sound, nothing of time for rows of a table, and no mains hum at a
    low sampling rate."""
    if is_ecg(batch.rank, batch.rate, batch.unit):
        return named_palette("clinical", batch.rank, batch.rate, batch.unit)
    if is_audio(batch.rank, batch.rate, batch.unit):
        return AUDIO
    if batch.kind == "signal" and batch.rate is None and all(map(math.isfinite, batch.bounds)):
        return TABLE
    slow = batch.kind == "signal" and batch.rate is not None and batch.rate <= 2 * 60
    return tuple(one for one in PALETTES[batch.kind] if not (slow and one.startswith("powerline_hum")))


def patch(batch: Samples) -> tuple[int, ...]:
    """Choose the patch for about 16 patches per axis of an image, 8 of a clip and 32 of a signal.

    At 224 pixels this is 14; the papers use 8.
    """
    along = {"signal": 32, "image": 16, "video": 8}[batch.kind]
    return tuple(max(1, round(length / along)) for length in batch.size)


def channels(batch: Samples) -> str:
    """Return the default groups of channels: four groups of three for the twelve leads of an ECG, else all together."""
    return TWELVE if is_twelve_lead(batch.leads) else TOGETHER


def chunk(batch: Samples, entries: int) -> int:
    """Return the number of samples that step together: at most 64, with a bank of at most a quarter of a gigabyte."""
    one = (entries + 1) * math.prod(batch.shape) * _FLOAT
    return max(1, min(64, _BANK_BYTES // one))


def check_room(batch: Samples, samples: int, entries: int) -> None:
    """Refuse a chunk whose bank would not fit into this machine's free memory."""
    need, free = samples * (entries + 1) * math.prod(batch.shape) * 4, free_bytes()
    if free is not None and need > free:
        sizes = f"{need / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free"
        raise OptionError(f"a chunk of {samples} samples needs {sizes}: use a smaller chunk")
