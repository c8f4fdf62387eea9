"""What PPO asks of the two agents: how likely was what they chose and how open the choice, and what each is rewarded for
beside the shared drop in confidence. Rewards are pure functions, a figure a row.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.distributions import Distribution

from rlab.papers.video.choices import Hierarchy
from rlab.papers.video.pair import Pair
from rlab.papers.video.view import View

KEYS = ("frames", "cells", "changes", "tries", "patches", "scalars")


class ChosenDistribution(Distribution):
    """The distribution an option was drawn from, as far as PPO asks: the option's log-probability, and the entropy."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, log_prob: Tensor, entropy: Tensor) -> None:
        self._log_prob, self._entropy = log_prob, entropy
        super().__init__(log_prob.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._log_prob

    def entropy(self) -> Tensor:
        return self._entropy


class TemporalActor(nn.Module):
    in_keys = [*KEYS, "chosen"]  # noqa: RUF012

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.agent = pair.temporal
        self.foreseen: Tensor | None = None  # (b, t), of the last judgement

    def get_dist(self, tensordict: TensorDict) -> ChosenDistribution:
        read, self.foreseen = self.agent.foresee(_view(tensordict))
        _, log_prob, entropy = self.agent.choose(read, self.foreseen, None, tensordict.get("chosen"))
        return ChosenDistribution(log_prob, entropy)


class SpatialActor(nn.Module):
    in_keys = [*KEYS, "kept", "option"]  # noqa: RUF012

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.agent = pair.spatial
        self.hierarchy: Hierarchy | None = None  # of the sampler that is learned from
        self.foreseen: Tensor | None = None  # (b, t, f + 1, q), of the last judgement

    def get_dist(self, tensordict: TensorDict) -> ChosenDistribution:
        assert self.hierarchy is not None
        kept, option = tensordict.get("kept"), tensordict.get("option")
        seen = _view(tensordict)
        maps = self.agent.see(seen)
        self.foreseen = maps.effect
        choice = self.agent.choose(maps, seen, kept, self.hierarchy, None, option)
        return ChosenDistribution(choice.log_prob, choice.entropy)


def _view(tensordict: TensorDict) -> View:
    return {key: tensordict.get(key).float() for key in KEYS}


def few_frames(kept: Tensor, limit: int) -> Tensor:
    """kept (n, t) bool -> (n,) in -1..0: the share of frames kept beyond `limit`."""
    over = (kept.sum(1) - limit).clamp(min=0)
    return -over / kept.shape[1]


def representative(frames: Tensor, kept: Tensor) -> Tensor:
    """Features (n, t, k), kept (n, t) with at least one -> (n,) in 0..1: how near the kept frames are to all others.

    Distances count in units of the mean distance between two frames of the clip; a clip that stands still is all alike.
    """
    apart = torch.cdist(frames, frames)
    unit = apart.mean((1, 2)).clamp(min=1e-6)
    nearest = apart.masked_fill(~kept[:, None], torch.inf).amin(2)
    return torch.exp(-nearest.mean(1) / unit)


def on_salient(saliency: Tensor, region: Tensor, kept: Tensor) -> Tensor:
    """Saliency (n, t, q), region (n, t, q) bool, kept (n, t) -> (n,) in -1..1: how much more salient than its frame a region is.

    1 is the frame's most salient patch, 0 its mean; frames without anything salient count as 0.
    """
    size = region.sum(2).clamp(min=1)
    inside = (saliency * region).sum(2) / size
    mean, top = saliency.mean(2), saliency.amax(2)
    gain = ((inside - mean) / (top - mean).clamp(min=1e-3)).clamp(-1, 1)
    on = kept & region.any(2)
    return (gain * on).sum(1) / on.sum(1).clamp(min=1)
