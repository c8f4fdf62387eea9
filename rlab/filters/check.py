"""Check filters on the user's samples before spending queries on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor

from rlab.filters.base import FAMILIES, Filter
from rlab.filters.palette import Palette, bounded, refuse_outside, unit_scale

_SAMPLES = 4  # how many samples a palette is checked on
_SEED = 0
_TOLERANCE = 1e-6  # a distance may fall by this share and still count as equal
_BUILT_IN = frozenset(FAMILIES)  # on import of this module, only rlab's own filters are registered


def check_filter(
    kind: Filter, x: Tensor, bounds: tuple[float, float], severities: Sequence[float] | None = None
) -> None:
    """Run `kind` on x: (b, c, *size) at its own or the given severities and raise `OptionError` if it breaks a rule."""
    ladder = sorted(set(severities or kind.severities))
    distances = _distances(kind, x, bounds, ladder)
    if not any(distances):
        trial = f"{len(x)} samples at severities {ladder[0]:g} to {ladder[-1]:g}"
        raise kind.error(f"does nothing: it changed no value of {trial}")
    if kind.additive:
        _check_additive(kind, x, bounds)
    for (weak, before), (strong, after) in pairwise(zip(ladder, distances, strict=True)):
        if not kind.levels and after < before * (1 - _TOLERANCE):
            pair = f"at severity {strong:g} (mean L2 {after:.4g}) than at {weak:g} (mean L2 {before:.4g})"
            raise kind.error(f"distorts less {pair}: a larger severity must not give a smaller change")


def _check_additive(kind: Filter, x: Tensor, bounds: tuple[float, float]) -> None:
    """Check that severity 0.5 changes x half as much as 1, because severities in dB or in the data's unit are scaled from 1."""
    shift, scale = unit_scale(x, bounds)
    unit = (x - shift) / scale
    kind = kind.at_scale(scale)
    whole, half = (kind(unit.clone(), severity, _generator(x)) - unit for severity in (1.0, 0.5))
    if not torch.allclose(whole, 2 * half, rtol=1e-3, atol=1e-5):
        advice = "return x + severity * pattern, or set additive=False"
        raise kind.error(f"is declared additive, but its change at severity 1 is not twice that at 0.5: {advice}")


def check_palette(palette: Palette, x: Tensor, bounds: tuple[float, float]) -> None:
    """Check each filter, at its own severities and those of the palette, on a few samples of x: (b, c, *size)."""
    few = x[torch.linspace(0, len(x) - 1, min(len(x), _SAMPLES)).round().long()]
    for kind in {id(entry.filter): entry.filter for entry in palette.entries}.values():
        used = {entry.called_with for entry in palette.entries if entry.filter is kind}
        registered = kind.source or kind
        if any(registered in FAMILIES[name](x.shape[1]) for name in _BUILT_IN):
            _distances(kind, few, bounds, used)  # a black image or a still clip is not the filter's fault
        else:
            check_filter(kind, few, bounds, sorted(used.union(kind.severities)))


def _distances(kind: Filter, x: Tensor, bounds: tuple[float, float], severities: Iterable[float]) -> list[float]:
    """Mean L2 distance from x: (b, c, *size) at each severity, after clipping as in a palette."""
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
    if not torch.equal(original, x):  # changed through numpy, where torch does not notice
        raise kind.error("changed its input in place: work on x.clone()")
    if bounded(bounds) and not kind.clip:
        refuse_outside(kind, result)
    if not torch.equal(result, kind(original, severity, _generator(x))):
        advice = "draw random numbers from the given generator, as in torch.rand(x.shape, generator=generator)"
        raise kind.error(f"gave two different results for the same seed: {advice}")
    return result


def _generator(x: Tensor) -> Generator:
    return Generator(x.device).manual_seed(_SEED)
