"""The two agents side by side. They share nothing but the reward they are trained with.

The temporal agent is an LSTM that reads the frames one after the other and says of each whether to keep it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlab.core.grid import PatchGrid
from rlab.papers.video.choices import Hierarchy, toss
from rlab.papers.video.spatial import Choice, SpatialAgent
from rlab.papers.video.view import SCALARS, PairConfig, Trunk, View
from rlab.priors.trained import DirectionPrior

_STANDING = 7  # numbers of `_standing`
_KEEPS = -2.0  # the logit by which an untrained agent keeps a frame


class TemporalAgent(nn.Module):
    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        self.trunk = Trunk(config.encoder, config.channels, config.width)
        self.read = nn.LSTM(config.width + _STANDING + SCALARS, config.width, batch_first=True)
        self.keep = nn.Linear(config.width, 1)
        self.effect = nn.Linear(config.width, 1)
        self.trust = nn.Parameter(torch.tensor(2.0))
        nn.init.constant_(self.keep.bias, _KEEPS)

    def foresee(self, view: View) -> tuple[Tensor, Tensor]:
        """What was read (n, t, w), and the largest drop in margin foreseen of one change on each frame (n, t), see view.EFFECT."""
        n, t = view["frames"].shape[:2]
        scalars = view["scalars"][:, None].expand(n, t, SCALARS)
        read, _ = self.read(torch.cat([self.trunk(view["frames"]), _standing(view), scalars], 2))
        return read, self.effect(read).squeeze(2)

    def forward(
        self, view: View, draw: Tensor | None = None, taken: Tensor | None = None, temperature: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draws (n, t), or what was kept (n, t) -> kept (n, t) bool, log-probability (n,), entropy (n,).

        `temperature` (n,) divides the logits: above 1 leaves more to chance.
        """
        return self.choose(*self.foresee(view), draw, taken, temperature)

    def choose(
        self, read: Tensor, effect: Tensor, draw: Tensor | None, taken: Tensor | None, temperature: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same where the frames have been read."""
        logits = self.keep(read).squeeze(2) + self.trust * effect.detach()
        return toss(logits if temperature is None else logits / temperature[:, None], draw, taken)


def _standing(view: View) -> Tensor:
    """(n, t, 7): of each frame its position, motion, and what was held, tried and gained there."""
    cells, patches, tries = view["cells"], view["patches"], view["tries"]
    n, t = cells.shape[:2]
    position = torch.linspace(0, 1, t, device=cells.device).expand(n, t)
    moved = motion(cells).mean((2, 3))
    distorted, restored = patches[:, :, 0].mean((2, 3)), patches[:, :, 1].mean((2, 3))
    gained = tries[:, :, :, 1].amax(1)
    often = tries[:, :, :, 2].mean((1, 3, 4))
    return torch.stack(
        [position, 4 * moved, 4 * distorted, restored, gained.amax((2, 3)), gained.mean((2, 3)), often], 2
    )


def motion(cells: Tensor) -> Tensor:
    """Maps (n, t, m, rows, columns) -> (n, t, rows, columns): mean absolute difference to the frame before."""
    before = torch.cat([cells[:, :1], cells[:, :-1]], 1)
    return (cells - before).abs().mean(2)


def at_least_one(kept: Tensor, draw: Tensor) -> Tensor:
    """kept (n, t) -> the same, but where no frame was kept the one a draw (n,) names."""
    named = torch.nn.functional.one_hot((draw * kept.shape[1]).long(), kept.shape[1]).bool()
    return kept | (named & ~kept.any(1, keepdim=True))


@dataclass(frozen=True)
class PairAction:
    """One step of both."""

    chosen: Tensor  # (n, t) bool, the frames the temporal agent chose
    kept: Tensor  # (n, t) bool, at least one frame
    choice: Choice
    log_prob: Tensor  # (n,) of that choice


class Pair(nn.Module):
    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        self.config = config
        self.temporal = TemporalAgent(config)
        self.spatial = SpatialAgent(config)
        self.compass = None  # the direction prior, under the name it has in agent files
        if config.heads:
            shape = (config.prior_width, config.heads, config.prior_levels, config.shrink)
            self.compass = DirectionPrior(3, config.channels, *shape)

    def hierarchy(self, grid: PatchGrid, levels: int | None = None) -> Hierarchy:
        return Hierarchy((grid.shape[1], grid.shape[2]), self.config.coarse, levels or self.config.levels)

    def act(
        self,
        view: View,
        hierarchy: Hierarchy,
        draw: Tensor,
        temperature: Tensor | None = None,
        distortion_weight: float | None = None,
    ) -> PairAction:
        """Draws (n, t * (levels + 2) + 1) in [0, 1) decide."""
        t, kinds = view["frames"].shape[1], hierarchy.levels + 1
        frames, places, spare = draw.split((t, t * kinds, 1), 1)
        chosen, log_prob, _ = self.temporal(view, frames, None, temperature)
        if not self.config.temporal:
            chosen = torch.ones_like(chosen)
        kept = at_least_one(chosen, spare.squeeze(1))
        choice = self.spatial(
            view, kept, hierarchy, places.unflatten(1, (t, kinds)), None, temperature, distortion_weight
        )
        return PairAction(chosen, kept, choice, log_prob)


def draws_needed(hierarchy: Hierarchy, frames: int) -> int:
    return frames * (hierarchy.levels + 2) + 1


def written(assignment: Tensor, kept: Tensor, region: Tensor, entry: Tensor) -> Tensor:
    """assignment (n, p) with entry (n, t) written into region (n, t, q) of the kept frames (n, t)."""
    inside = region & kept[:, :, None]
    return torch.where(inside, entry[:, :, None], assignment.view(inside.shape)).flatten(1)
