"""What training victims teach beyond rewards: the effect of each single change to first order, from their gradients.

Only training asks for gradients; the attack never does.
"""

from __future__ import annotations

from torch import Tensor

from rlab.core.env import State
from rlab.training.episodes import EpisodeSampler
from rlab.victims.torch_module import TorchVictim


def effects(sampler: EpisodeSampler, state: State) -> Tensor | None:
    """(n, f + 1, p): the drop in margin each single change would bring, as a share of the first margin; None without gradients."""
    if not isinstance(sampler.victim, TorchVictim):
        return None
    slope = sampler.victim.input_gradient(state.x, lambda scores: sampler.task.goal.margin(scores, state.y), "train")
    change = ((state.bank - state.x[:, None]) * slope[:, None]).sum(2)
    return -sampler.task.grid.total(change) / state.margin0[:, None, None]
