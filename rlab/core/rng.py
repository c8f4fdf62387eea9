"""Random numbers per sample: the same seed and step give the same draw, whatever else is in the batch."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

# splitmix64 (Steele, Lea, Flood 2014) on signed 64-bit tensors, whose products wrap.
_STEP, _MIX1, _MIX2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right without keeping the sign, unlike torch's operator."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def splitmix64(x: Tensor) -> Tensor:
    """Apply splitmix64's output function to int64 states."""
    x = _shift(x, 30).bitwise_xor_(x).mul_(_MIX1)
    x = _shift(x, 27).bitwise_xor_(x).mul_(_MIX2)
    return _shift(x, 31).bitwise_xor_(x)


def uniform(seeds: Tensor, step: Tensor, count: int) -> Tensor:
    """seeds (n,) and step (n,) int64 -> (n, count) float32 in [0, 1)."""
    lane = torch.arange(1, count + 1, device=seeds.device)
    key = splitmix64(splitmix64(seeds * _STEP) + step)
    return _shift(splitmix64(key[:, None] + lane * _STEP), 40).to(torch.float32) * 2.0**-24


def normal(uniform: Tensor) -> Tensor:
    """Turn uniform draws (n, 2 m) in [0, 1) into standard normal draws (n, 2 m), by Box and Muller."""
    length, angle = (-2 * (1 - uniform[:, ::2]).log()).sqrt(), 2 * math.pi * uniform[:, 1::2]
    return torch.cat([length * angle.cos(), length * angle.sin()], 1)


def sample_seeds(seed: int, start: int, count: int) -> Tensor:
    """(count,) int64: one seed each for the samples `start`, `start + 1`, ... of a run."""
    index = torch.arange(start, start + count)
    return splitmix64(splitmix64(torch.tensor(seed) * _STEP) + index)


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and random inside the block, and restore them after it."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
