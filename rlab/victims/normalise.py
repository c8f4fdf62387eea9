"""Mean and standard deviation by channel, applied inside the victim so that data keep their natural range outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import InputError

Channels = float | Sequence[float]  # one number for all channels, or one a channel


@dataclass(frozen=True)
class Normalise:
    """x: (b, c, *size) -> (x - mean) / std; both in the units of x, one value for all channels or one each."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, mean: Channels | None, std: Channels | None) -> Normalise | None:
        """None where neither is given; a missing mean is 0, a missing std is 1."""
        if mean is None and std is None:
            return None
        return cls(_values(0.0 if mean is None else mean), _values(1.0 if std is None else std))

    def __post_init__(self) -> None:
        if not all(math.isfinite(m) for m in self.mean) or not all(s > 0 and math.isfinite(s) for s in self.std):
            raise InputError(f"expected a finite mean and a std above 0, got mean={self.mean} and std={self.std}")

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self._spread(self.mean, "mean", x)) / self._spread(self.std, "std", x)

    def within(self, bounds: tuple[float, float]) -> Normalise:
        """The same normalisation, stated for data in [0, 1], for data in `bounds`."""
        low, span = bounds[0], bounds[1] - bounds[0]
        if not math.isfinite(span):
            raise InputError(
                f"the model's own mean and std are for data in [0, 1], not {list(bounds)}: pass mean and std"
            )
        return Normalise(tuple(low + m * span for m in self.mean), tuple(s * span for s in self.std))

    @staticmethod
    def _spread(values: tuple[float, ...], name: str, x: Tensor) -> Tensor:
        if len(values) not in (1, x.shape[1]):
            raise InputError(
                f"{name} has {len(values)} values but the inputs have {x.shape[1]} channels: give one a channel, or one"
            )
        return torch.tensor(values, dtype=x.dtype, device=x.device).view(-1, *(1,) * (x.dim() - 2))


def _values(given: Channels) -> tuple[float, ...]:
    return (float(given),) if isinstance(given, int | float) else tuple(float(value) for value in given)
