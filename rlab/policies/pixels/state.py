"""What the search of free pixels does by kind of data, and what it remembers of each sample.

Perturbations are (n, c, *size) in units of L2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from rlab.core.batched import Rows
from rlab.data.kinds import Kind
from rlab.policies.pixels.frames import Frames
from rlab.policies.pixels.ray import Ray


@dataclass(frozen=True)
class Habits:
    """What depends on the kind of data: on clips, surrogates agree least with a victim, and more of their directions count."""

    opening: int = 3  # queries that follow the surrogates
    steps: int = 5  # on the surrogates before each of them but the first
    near: int = 2  # a move becomes the base if its margin is at most this many times as far from zero as the base's
    wider: float = 1.0  # how the angle of leanings changes after one that flipped nearer
    narrower: float = 1.0  # the same after another
    # Queries along a trained prior's direction: at least, and at most if none flips. On beats it made flips farther.
    along: tuple[int, int] = (0, 0)
    blurs: bool = False  # whether the surrogates' gradients are blurred after a miss, which made photos worse


HABITS: dict[Kind, Habits] = {
    "signal": Habits(),
    "image": Habits(along=(4, 8)),
    "video": Habits(opening=9, steps=3, near=1, wider=1.3, narrower=0.85, blurs=True),
}


@dataclass(frozen=True)
class Lead(Rows):
    """Where the surrogates lead."""

    ray: Ray  # along the sum of their mean directions, each of length one
    spare: Tensor  # (n, 2 s, c, *size) directions to lean towards
    leant: Tensor  # (n,) how many of them were used
    alike: Tensor  # (n, s) bool: whether a surrogate reads copies of the input alike
    angle: Tensor  # (n,) of the next leaning
    blurred: Tensor  # (n,) bool: whether a query missed before the first flip; since then directions are blurred
    frames: Frames  # of a clip, those to change

    @property
    def delta(self) -> Tensor:
        """(n, c, *size): the perturbation to query next."""
        return replace(self.ray, towards=self.chosen(self.ray.towards)).delta

    def at(self, radius: Tensor) -> Lead:
        """With another radius (n,) to query next."""
        return replace(self, ray=replace(self.ray, radius=radius))

    def chosen(self, x: Tensor) -> Tensor:
        """Values (n, ..., t, h, w) of the frames to change, and 0 elsewhere; all values of what is no clip."""
        if self.ray.towards.dim() < 5:
            return x
        mask = self.frames.mask(x.shape[-3])
        return x * mask.view(len(x), *(1,) * (x.dim() - 4), -1, 1, 1)


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
    proposals: int = 0  # the number of proposals made; all rows step together
