"""How far to trust each forecaster of a sample: Bayesian linear regression of the victim's margin on their forecasts.

    margin = w . forecasts + noise,   w ~ N(first guess, V)

The forecasters are the simulator's networks, the belief, and a constant. Each answer moves the weights of its sample towards
those that were right, so that a network that misleads loses its say within a few queries. Older answers fade, because the
belief changes as it learns. Shapes: n samples, d forecasters, c candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.batched import Rows

SAY = 0.8  # weight of the networks together before the first answer; the rest is the belief's
VARIANCE = (0.6, 0.3, 0.05)  # of the weight of the networks together, of the belief's and of the constant
NOISE = 0.3  # standard deviation of an answer before the first one, in units of the initial margin
COUNT = 3.0  # answers that this guess is worth
FADE = 0.93  # weight of the answers so far when a new one arrives


@dataclass(frozen=True)
class Trust(Rows):
    """The posterior of the weights, as sums over the answers."""

    products: Tensor  # (n, d, d) of the forecasts
    moments: Tensor  # (n, d) forecasts times the margin, both relative to the first guess
    squares: Tensor  # (n,) sum of squared errors of the forecasts made
    count: Tensor  # (n,) answers, faded

    @classmethod
    def first(cls, networks: int, like: Tensor) -> Trust:
        """Before the first answer, for as many rows as `like` (n,)."""
        none = like.new_zeros(len(like), networks + 2)
        return cls(torch.diag_embed(none), none, none[:, 0], none[:, 0])

    @property
    def noise(self) -> Tensor:
        """(n,): the standard deviation of an answer around its forecast."""
        return ((COUNT * NOISE**2 + self.squares) / (COUNT + self.count)).sqrt()

    def after(self, forecasts: Tensor, margin: Tensor) -> Trust:
        """With one more answer: forecasts (n, d) and the margin (n,)."""
        mean, _ = self.forecast(forecasts[:, None])
        left = margin - forecasts @ _guess(forecasts)
        return Trust(
            FADE * self.products + forecasts[:, :, None] * forecasts[:, None],
            FADE * self.moments + forecasts * left[:, None],
            FADE * self.squares + (margin - mean[:, 0]).square(),
            FADE * self.count + 1,
        )

    def forecast(self, forecasts: Tensor) -> tuple[Tensor, Tensor]:
        """forecasts (n, c, d) -> mean and standard deviation (n, c) of the victim's margin."""
        noise = self.noise
        precision = torch.diag_embed(1 / _variance(forecasts)) + self.products / noise.square()[:, None, None]
        factor = torch.linalg.cholesky(precision)
        moved = torch.cholesky_solve((self.moments / noise.square()[:, None])[:, :, None], factor)[:, :, 0]
        mean = ((_guess(forecasts) + moved)[:, None] * forecasts).sum(2)
        spread = torch.linalg.solve_triangular(factor, forecasts.transpose(1, 2), upper=False).square().sum(1)
        return mean, (spread + noise.square()[:, None]).sqrt()


def _guess(like: Tensor) -> Tensor:
    """(d,): the weights before the first answer."""
    networks = like.shape[-1] - 2
    return like.new_tensor([SAY / networks] * networks + [1 - SAY, 0.0])


def _variance(like: Tensor) -> Tensor:
    """(d,): their variance."""
    networks = like.shape[-1] - 2
    return like.new_tensor([VARIANCE[0] / networks] * networks + list(VARIANCE[1:]))
