"""What the search of free pixels remembers of each sample.

Perturbations are (n, c, *size) in units of L2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from rlab.core.batched import Rows
from rlab.policies.pixels.ray import Ray


@dataclass(frozen=True)
class Lead(Rows):
    """Where the surrogates lead."""

    ray: Ray  # along the sum of their mean directions, each of length one
    spare: Tensor  # (n, 2 s, c, *size) directions to lean towards
    leant: Tensor  # (n,) how many of them were used
    alike: Tensor  # (n, s) bool: whether a surrogate reads copies of the input alike

    def at(self, radius: Tensor) -> Lead:
        """With another radius (n,) to query next."""
        return replace(self, ray=replace(self.ray, radius=radius))


@dataclass(frozen=True)
class PixelState(Rows):
    """The believed margins near a base point: their values and gradients. w rivals, d directions, b bands of them."""

    rivals: Tensor  # (n, w) the classes that could win, as indices into the goal's alternatives
    gradient: Tensor  # (n, w, c, *size) the drop of each margin for a unit of L2
    base: Tensor  # (n, c, *size)
    at_base: Tensor  # (n, w) margins there
    queried: Tensor  # (n, c, *size) the last perturbation
    index: Tensor  # (n,) the direction of the basis that it probed, or MOVE or LEAN
    probed: Tensor  # (n, d) bool
    gained: Tensor  # (n, b + 1) summed squared gradients found in a band; the last is the surrogates'
    tries: Tensor  # (n, b + 1)
    trust: Tensor  # (n,) the share of the way that a move goes
    failed: Tensor  # (n,) bool: the last query was a move that did not help
    lead: Lead | None = None  # only with surrogates
    ray: Ray | None = None  # only with a prior in place of surrogates
