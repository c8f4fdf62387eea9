"""The agents as TorchRL's PPO loss asks them: how likely is what was chosen, and how open was the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.distributions import Distribution

from rlab.policies.video.hierarchy import Hierarchy
from rlab.policies.video.pair import Pair
from rlab.policies.video.view import View

if TYPE_CHECKING:
    from tensordict import TensorDict

KEYS = ("frames", "cells", "changes", "tries", "patches", "scalars")


class Judged(Distribution):
    """The distribution an option was drawn from, as far as PPO asks: the option's log-probability, and the entropy."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, log_prob: Tensor, entropy: Tensor) -> None:
        self.said, self.spread = log_prob, entropy
        super().__init__(log_prob.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.said

    def entropy(self) -> Tensor:
        return self.spread


class TemporalActor(nn.Module):
    in_keys = [*KEYS, "said"]  # noqa: RUF012

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.agent = pair.temporal
        self.foreseen: Tensor | None = None  # (b, t), of the last judgement

    def get_dist(self, tensordict: TensorDict) -> Judged:
        read, self.foreseen = self.agent.foresee(_view(tensordict))
        _, log_prob, entropy = self.agent.choose(read, self.foreseen, None, tensordict.get("said"))
        return Judged(log_prob, entropy)


class SpatialActor(nn.Module):
    in_keys = [*KEYS, "kept", "option"]  # noqa: RUF012

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self.agent = pair.spatial
        self.hierarchy: Hierarchy | None = None  # of the sampler that is learned from
        self.foreseen: Tensor | None = None  # (b, t, f + 1, q), of the last judgement

    def get_dist(self, tensordict: TensorDict) -> Judged:
        assert self.hierarchy is not None
        kept, option = tensordict.get("kept"), tensordict.get("option")
        seen = _view(tensordict)
        maps = self.agent.see(seen)
        self.foreseen = maps.effect
        choice = self.agent.choose(maps, seen, kept, self.hierarchy, None, option)
        return Judged(choice.log_prob, choice.entropy)


def _view(tensordict: TensorDict) -> View:
    return {key: tensordict.get(key).float() for key in KEYS}
