"""The two agents side by side. They share nothing but the reward they are trained with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlab.core.grid import PatchGrid
from rlab.policies.video.config import PairConfig
from rlab.policies.video.hierarchy import Hierarchy
from rlab.policies.video.spatial import Choice, SpatialAgent
from rlab.policies.video.temporal import TemporalAgent, at_least_one
from rlab.policies.video.view import View
from rlab.priors.trained import DirectionPrior


@dataclass(frozen=True)
class Act:
    """One step of both."""

    said: Tensor  # (n, t) bool, as the temporal agent said it
    kept: Tensor  # (n, t) bool, at least one frame
    choice: Choice
    log_prob: Tensor  # (n,) of what was said


class Pair(nn.Module):
    def __init__(self, config: PairConfig) -> None:
        super().__init__()
        self.config = config
        self.temporal = TemporalAgent(config)
        self.spatial = SpatialAgent(config)
        self.compass = None
        if config.heads:
            shape = (config.compass_width, config.heads, config.compass_levels, config.shrink)
            self.compass = DirectionPrior(3, config.channels, *shape)

    def hierarchy(self, grid: PatchGrid, levels: int | None = None) -> Hierarchy:
        return Hierarchy((grid.shape[1], grid.shape[2]), self.config.coarse, levels or self.config.levels)

    def act(
        self,
        view: View,
        hierarchy: Hierarchy,
        draw: Tensor,
        heat: Tensor | None = None,
        thrift: float | None = None,
    ) -> Act:
        """Draws (n, t * (levels + 2) + 1) in [0, 1) decide."""
        t, kinds = view["frames"].shape[1], hierarchy.levels + 1
        frames, places, spare = draw.split((t, t * kinds, 1), 1)
        said, log_prob, _ = self.temporal(view, frames, None, heat)
        if not self.config.temporal:
            said = torch.ones_like(said)
        kept = at_least_one(said, spare.squeeze(1))
        choice = self.spatial(view, kept, hierarchy, places.unflatten(1, (t, kinds)), None, heat, thrift)
        return Act(said, kept, choice, log_prob)


def draws_needed(hierarchy: Hierarchy, frames: int) -> int:
    return frames * (hierarchy.levels + 2) + 1


def written(assignment: Tensor, kept: Tensor, region: Tensor, entry: Tensor) -> Tensor:
    """assignment (n, p) with entry (n, t) written into region (n, t, q) of the kept frames (n, t)."""
    inside = region & kept[:, :, None]
    return torch.where(inside, entry[:, :, None], assignment.view(inside.shape)).flatten(1)
