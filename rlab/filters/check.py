"""The contract of a filter, tried out on the user's own samples before a budget is spent on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor

from rlab.filters.base import FAMILIES, Filter
from rlab.filters.palette import Palette, bounded, refuse_outside, unit_scale

_SAMPLES = 4  # that a palette is tried on
_SEED = 0
_TOLERANCE = 1e-6  # by which a distance may fall, relative, and still count as equal
_BUILT_IN = frozenset(FAMILIES)  # the package has registered its own by the time this file is read, and nobody else has


def check_filter(
    kind: Filter, x: Tensor, bounds: tuple[float, float], severities: Sequence[float] | None = None
) -> None:
    """Tries `kind` on x: (b, c, *size) at its own severities, or those given, and refuses it where it breaks a rule."""
    ladder = sorted(set(severities or kind.severities))
    distances = _distances(kind, x, bounds, ladder)
    if not any(distances):
        tried = f"{len(x)} samples at severities {ladder[0]:g} to {ladder[-1]:g}"
        raise kind.error(f"does nothing: it changed no value of {tried}")
    if kind.additive:
        _check_additive(kind, x, bounds)
    for (weak, before), (strong, after) in pairwise(zip(ladder, distances, strict=True)):
        if after < before * (1 - _TOLERANCE):
            seen = f"at severity {strong:g} (mean L2 {after:.4g}) than at {weak:g} (mean L2 {before:.4g})"
            raise kind.error(f"distorts less {seen}: a larger severity must not come closer to the input")


def _check_additive(kind: Filter, x: Tensor, bounds: tuple[float, float]) -> None:
    """Severities in dB or in the data's unit are scaled from severity 1: half of it must change half as much."""
    shift, scale = unit_scale(x, bounds)
    unit = (x - shift) / scale
    kind = kind.at_scale(scale)
    whole, half = (kind(unit.clone(), severity, _generator(x)) - unit for severity in (1.0, 0.5))
    if not torch.allclose(whole, 2 * half, rtol=1e-3, atol=1e-5):
        advice = "return x + severity * something, or set additive=False"
        raise kind.error(f"says it is additive, but its change at severity 1 is not twice that at 0.5: {advice}")


def check_palette(palette: Palette, x: Tensor, bounds: tuple[float, float]) -> None:
    """Tries each filter once, at its own severities and those the palette uses, on a few of x: (b, c, *size)."""
    few = x[torch.linspace(0, len(x) - 1, min(len(x), _SAMPLES)).round().long()]
    for kind in {id(entry.filter): entry.filter for entry in palette.entries}.values():
        used = {entry.called_with for entry in palette.entries if entry.filter is kind}
        if _built_in(kind.source or kind, channels=x.shape[1]):
            _distances(kind, few, bounds, used)  # black images or still clips are no fault of the filter
        else:
            check_filter(kind, few, bounds, sorted(used.union(kind.severities)))


def _built_in(kind: Filter, channels: int) -> bool:
    return any(kind in FAMILIES[name](channels) for name in _BUILT_IN)


def _distances(kind: Filter, x: Tensor, bounds: tuple[float, float], severities: Iterable[float]) -> list[float]:
    """The mean L2 distance from x: (b, c, *size) at each severity, as the palette would see it."""
    shift, scale = unit_scale(x, bounds)
    unit = (x - shift) / scale
    low, high = ((edge - shift) / scale for edge in bounds)
    kind = kind.at_scale(scale)
    return [
        float((_call_checked(kind, unit, bounds, severity).clamp(low, high) - unit).flatten(1).norm(dim=1).mean())
        for severity in severities
    ]


def _call_checked(kind: Filter, x: Tensor, bounds: tuple[float, float], severity: float) -> Tensor:
    original = x.clone()
    result = kind(original, severity, _generator(x))
    if not torch.equal(original, x):  # past torch, by way of numpy
        raise kind.error("changed its input in place: work on x.clone()")
    if bounded(bounds) and not kind.clip:
        refuse_outside(kind, result)
    if not torch.equal(result, kind(original, severity, _generator(x))):
        advice = "take random numbers from the generator it gets, as in torch.rand(x.shape, generator=generator)"
        raise kind.error(f"gave two different results under the same seed: {advice}")
    return result


def _generator(x: Tensor) -> Generator:
    return Generator(x.device).manual_seed(_SEED)
