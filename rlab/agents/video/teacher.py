"""What training victims teach beyond rewards: the effect of each single change to first order, from their gradients.

Only training asks for gradients; the attack never does.
"""

from __future__ import annotations

from torch import Tensor

from rlab.agents.course import Course
from rlab.env import State
from rlab.victims.torch_module import TorchVictim


def effects(course: Course, state: State) -> Tensor | None:
    """(n, f + 1, p): the drop in margin each single change would bring, as a share of the first margin; None without gradients."""
    if not isinstance(course.victim, TorchVictim):
        return None
    slope = course.victim.slope(state.x, lambda scores: course.task.goal.margin(scores, state.y), "train")
    change = ((state.bank - state.x[:, None]) * slope[:, None]).sum(2)
    return -course.task.grid.total(change) / state.margin0[:, None, None]
