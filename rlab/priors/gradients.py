"""Steps along the gradients of surrogates as filters: palette entries like any other, without a query.

A filter does not know the label: the steps lead away from the class that each surrogate predicts for the untouched input.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Generator, Tensor

from rlab.core.goals import Untargeted
from rlab.errors import OptionError
from rlab.filters.base import GRADIENTS, Filter
from rlab.filters.palette import bounded
from rlab.priors.surrogates import SurrogatePrior

_SEVERITIES = (0.005, 0.01, 0.02, 0.04, 0.08)
_STEPS = 10  # of pgd, each a quarter of the way to its bound


def gradient_filters(prior: SurrogatePrior | None, bounds: tuple[float, float]) -> dict[str, Filter]:
    """The filters by name; without surrogates they cannot be applied."""
    shared = {"severities": _SEVERITIES, "clip": True, "scaled": True}
    applies = {"fgsm": _fgsm, "pgd": _pgd}
    return {
        name: Filter(name, partial(applies[name], prior=prior, bounds=bounds), about=about, **shared)  # type: ignore[arg-type]
        for name, about in GRADIENTS.items()
    }


def _fgsm(
    x: Tensor, severity: float, generator: Generator, prior: SurrogatePrior | None, bounds: tuple[float, float],
    scale: Tensor | float = 1.0,
) -> Tensor:  # fmt: skip
    """One step of `severity` in every value, by the sign of the mean gradient. https://arxiv.org/abs/1412.6572"""
    return x + severity * _away(_loaded(prior), x, _seen(_loaded(prior), x, bounds, scale), bounds, scale)


def _pgd(
    x: Tensor, severity: float, generator: Generator, prior: SurrogatePrior | None, bounds: tuple[float, float],
    scale: Tensor | float = 1.0,
) -> Tensor:  # fmt: skip
    """Ten such steps from a random point, never further than `severity` in any value. https://arxiv.org/abs/1706.06083"""
    surrogates = _loaded(prior)
    seen, step = _seen(surrogates, x, bounds, scale), 2.5 * severity / _STEPS
    change = severity * (2 * torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) - 1)
    for _ in range(_STEPS):
        at = x + change
        at = at.clamp(0, 1) if bounded(bounds) else at
        change = (at - x + step * _away(surrogates, at, seen, bounds, scale)).clamp(-severity, severity)
    return x + change


def _loaded(prior: SurrogatePrior | None) -> SurrogatePrior:
    if prior is None:
        raise OptionError("the filters fgsm and pgd need surrogates: pass surrogate")
    return prior


def _natural(x: Tensor, bounds: tuple[float, float], scale: Tensor | float) -> Tensor:
    """Scaled values back in the data's own unit, which a surrogate expects."""
    return (x * (bounds[1] - bounds[0]) + bounds[0]).clamp(*bounds) if bounded(bounds) else x * scale


def _seen(prior: SurrogatePrior, x: Tensor, bounds: tuple[float, float], scale: Tensor | float) -> list[Tensor]:
    """(b,) for each surrogate: the class that it predicts."""
    natural = _natural(x, bounds, scale)
    return [surrogate(natural, "surrogate").argmax(1) for surrogate in prior.surrogates]


def _away(
    prior: SurrogatePrior, x: Tensor, seen: list[Tensor], bounds: tuple[float, float], scale: Tensor | float
) -> Tensor:
    """(b, c, *size) of -1, 0, 1: the direction in which the margins fall, with equal weight for each surrogate."""
    natural, total = _natural(x, bounds, scale), torch.zeros_like(x)
    for number, labels in enumerate(seen):
        gradient = prior.gradient(number, natural, Untargeted().margin, labels)
        size = gradient.flatten(1).abs().mean(1).clamp(min=1e-30)
        total = total - gradient / size.view(-1, *(1,) * (x.dim() - 1))
    return total.sign()
