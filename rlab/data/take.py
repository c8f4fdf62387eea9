"""Which samples of a source are used: the first few, or a few drawn at random; decided before much is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlab.errors import InputError


@dataclass(frozen=True)
class Take:
    """At most `limit` samples, in the source's order or in one drawn with `seed`."""

    limit: int | None = None
    shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise InputError(f"expected a limit of at least 1 sample, got {self.limit}")

    def order(self, count: int) -> list[int]:
        """Positions in 0..count - 1 of the samples to use."""
        every = np.random.default_rng(self.seed).permutation(count) if self.shuffle else np.arange(count)
        return [int(i) for i in every[: self.limit]]


def check_room(count: int, shape: Sequence[int]) -> None:
    """Refuses float32 samples (count, *shape) that would not fit into this machine's free memory."""
    need, free = 4 * count * math.prod(shape), free_bytes()
    if free is not None and need > free:
        raise InputError(
            f"{count} samples of shape {tuple(shape)} need {need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB "
            f"are free: pass a limit or a smaller size"
        )


def free_bytes() -> int | None:
    """Memory that can still be used, where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
