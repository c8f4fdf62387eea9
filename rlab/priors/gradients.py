"""Steps along the gradients of surrogates as filters: palette entries like any other, without a query.

A filter does not know the label: the steps lead away from the class that each surrogate predicts for the untouched input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlab.core.goals import Untargeted
from rlab.core.vectors import wide
from rlab.errors import OptionError
from rlab.filters.base import GRADIENTS, Filter
from rlab.filters.palette import bounded
from rlab.priors.surrogates import SurrogatePrior

_SEVERITIES = (0.005, 0.01, 0.02, 0.04, 0.08)
_STEPS = 10  # of pgd, each a quarter of the way to its bound


def gradient_filters(prior: SurrogatePrior | None, bounds: tuple[float, float]) -> dict[str, Filter]:
    """The filters by name; without surrogates they cannot be applied."""
    steps = Steps(prior, bounds)
    applies = {"fgsm": steps.fgsm, "pgd": steps.pgd}
    return {
        name: Filter(name, applies[name], _SEVERITIES, clip=True, about=about, scaled=True)
        for name, about in GRADIENTS.items()
    }


@dataclass(frozen=True)
class Steps:
    """Steps from scaled inputs (b, c, *size), of which 1 stands for `scale` (b, 1, ...) if the data have no bounds."""

    given: SurrogatePrior | None
    bounds: tuple[float, float]

    @property
    def prior(self) -> SurrogatePrior:
        if self.given is None:
            raise OptionError("the filters fgsm and pgd need surrogates: pass surrogate")
        return self.given

    def fgsm(self, x: Tensor, severity: float, generator: Generator, scale: Tensor | float = 1.0) -> Tensor:
        """One step of `severity` in every value, by the sign of the mean gradient. https://arxiv.org/abs/1412.6572"""
        return x + severity * self._away(x, self._seen(x, scale), scale)

    def pgd(self, x: Tensor, severity: float, generator: Generator, scale: Tensor | float = 1.0) -> Tensor:
        """Ten such steps from a random point, never further than `severity` in any value. https://arxiv.org/abs/1706.06083"""
        seen, step = self._seen(x, scale), 2.5 * severity / _STEPS
        change = severity * (2 * torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype) - 1)
        for _ in range(_STEPS):
            at = x + change
            at = at.clamp(0, 1) if bounded(self.bounds) else at
            change = (at - x + step * self._away(at, seen, scale)).clamp(-severity, severity)
        return x + change

    def _natural(self, x: Tensor, scale: Tensor | float) -> Tensor:
        """Scaled values back in the data's own unit, which a surrogate expects."""
        low, high = self.bounds
        return (x * (high - low) + low).clamp(low, high) if bounded(self.bounds) else x * scale

    def _seen(self, x: Tensor, scale: Tensor | float) -> list[Tensor]:
        """(b,) for each surrogate: the class that it predicts."""
        natural = self._natural(x, scale)
        return [surrogate(natural, "surrogate").argmax(1) for surrogate in self.prior.surrogates]

    def _away(self, x: Tensor, seen: list[Tensor], scale: Tensor | float) -> Tensor:
        """(b, c, *size) of -1, 0, 1: the direction in which the margins fall, with equal weight for each surrogate."""
        natural, total = self._natural(x, scale), torch.zeros_like(x)
        for number, labels in enumerate(seen):
            _, gradient = self.prior.differentiate(number, natural, Untargeted().margin, labels)
            size = gradient.flatten(1).abs().mean(1).clamp(min=1e-30)
            total = total - gradient / wide(size, gradient)
        return total.sign()
