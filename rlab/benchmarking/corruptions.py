"""Common corruptions for comparison: a filter over the whole input, no agent, as strong as a level's mean L2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlab.benchmarking.folder import Benchmark
from rlab.core.distances import l2
from rlab.errors import InputError
from rlab.filters.base import Filter
from rlab.filters.palette import Palette, bounded, unit_scale

_HALVINGS = 24
_NEAR = 0.05  # by how much of the L2 asked for a corruption may miss it and still be compared


@dataclass(frozen=True)
class Strength:
    """How strong a corruption has to be for a mean L2."""

    severity: float
    l2: float  # mean, as reached
    near: bool  # whether it is the L2 that was asked for


def corruptions_of(benchmark: Benchmark, wanted: Sequence[str] | bool = True) -> tuple[Filter, ...]:
    """Filters by name, True for the benchmark's own, False for none; each once."""
    if wanted is False:
        return ()
    shape = benchmark.manifest.shape
    names = benchmark.manifest.palette if wanted is True else wanted
    try:
        palette = Palette.of(names, len(shape.size), shape.channels, shape.rate, shape.unit)
    except InputError as error:
        raise InputError(f"cannot make the corruptions to compare with: {error}") from error
    return tuple({entry.filter.name: entry.filter for entry in palette.entries}.values())


def strength(benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], target: float) -> Strength:
    """The severity whose mean L2 over x0 (n, c, *size) comes nearest to `target`; found by halving, no model is asked."""

    def reach(severity: float) -> float:
        try:
            return mean_l2(benchmark, x0, apply(benchmark, corruption, x0, seeds, severity))
        except (InputError, ValueError, RuntimeError):  # beyond what the filter can do
            return math.inf

    low, high = 0.0, corruption.severities[-1]
    while reach(high) < target and high < 64 * corruption.severities[-1]:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        far = reach(middle)
        low, high = (middle, high) if far < target else (low, middle)
        if abs(far - target) < 0.002 * target:
            return Strength(middle, far, True)
    ends = [(severity, reach(severity)) for severity in (low, high) if severity > 0]
    severity, far = min(ends, key=lambda pair: abs(pair[1] - target))
    return Strength(severity, far, abs(far - target) <= _NEAR * target)


def apply(benchmark: Benchmark, corruption: Filter, x0: Tensor, seeds: Sequence[int], severity: float) -> Tensor:
    """Each sample of x0 (n, c, *size) by its own seed, as the files would hold it."""
    bounds = benchmark.manifest.shape.bounds
    shift, scale = unit_scale(x0, bounds)
    unit = (x0 - shift) / scale
    rngs = (Generator().manual_seed(seed % 2**63) for seed in seeds)
    changed = torch.cat([corruption(row[None], severity, rng) for row, rng in zip(unit, rngs, strict=True)])
    return benchmark.format.stored((changed * scale + shift).clamp(*bounds))


def mean_l2(benchmark: Benchmark, x0: Tensor, x: Tensor) -> float:
    """In the unit of the metadata: of values in [0, 1] where there are bounds."""
    bounds = benchmark.manifest.shape.bounds
    return float(l2(x0, x).mean()) / (bounds[1] - bounds[0] if bounded(bounds) else 1.0)
