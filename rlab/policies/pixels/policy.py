"""Free pixels: the search for the smallest perturbation of all values, by surrogates' gradients or by queries alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.env import Proposal, State, Task
from rlab.core.vectors import lengths, unit, wide
from rlab.data.kinds import Kind
from rlab.policies.base import Policy
from rlab.policies.pixels import slopes
from rlab.policies.pixels.labels import LabelPolicy
from rlab.policies.pixels.query import Values, perturb, propose_values
from rlab.policies.pixels.ray import Ray
from rlab.policies.pixels.slopes import LEAN, MOVE, PROBE, far, margins_of
from rlab.policies.pixels.state import PixelState
from rlab.policies.pixels.surrogates import Guide, follows
from rlab.priors.base import NoPrior, Prior
from rlab.priors.surrogates import SurrogatePrior

# The share of the distance that makes a move worth a query, with surrogates and without.
GAIN = {True: 0.02, False: 0.05}
FALL = 0.15  # the share of the margin that makes a move worth a query before the first flip
FAR = 0.01  # the most that every value may change before the first flip, to begin with
STEPS = 0.5  # the least change of every value in a probe, in steps of rounded values: rounding must not undo it
PATIENCE = 100  # queries after which this limit has doubled
# Queries along a trained prior's direction: at least, and at most if none flips. On beats it made flips farther.
ALONG: dict[Kind, tuple[int, int]] = {"signal": (0, 0), "image": (4, 8), "video": (0, 0)}
START = 0.007  # how much every value changes in the first query along a prior's direction


@dataclass(frozen=True)
class PixelPolicy(Policy[PixelState]):
    """With surrogates, the first three queries follow them, and all until one has flipped.

    Without them, the first four to eight queries about an image follow the direction of `opening`, if it has one. If the model
    returns labels only, `LabelPolicy` takes over, which starts with the surrogates or with `opening`.
    """

    reduces: ClassVar[bool] = True

    values: Values
    prior: SurrogatePrior | None = field(default=None, repr=False)
    opening: Prior = field(default_factory=NoPrior, repr=False)

    def __str__(self) -> str:
        return "pixels" if self.prior is None else f"pixels with {self.prior}"

    @property
    def _guide(self) -> Guide | None:
        return None if self.prior is None else Guide(self.prior, self.values.bounds)

    def by_labels(self) -> LabelPolicy:
        return LabelPolicy(self.values, self.opening if self.prior is None else self.prior)

    @torch.no_grad()
    def begin(self, state: State, task: Task) -> PixelState:
        memory, guide = slopes.begin(state, task), self._guide
        if guide is not None:
            return replace(memory, lead=guide.begin(state, task))
        if not any(ALONG[task.grid.kind]):
            return memory
        self.opening.check_classes(state.scores.shape[1])
        directions = self.opening.directions(state.x0, state.y, state.scale, task.goal)
        if directions is None:
            return memory
        return replace(memory, ray=Ray.begin(state, unit(directions, 2).mean(1), far(state, START)))

    @torch.no_grad()
    def observe(self, state: State, memory: PixelState, task: Task) -> PixelState:
        memory = slopes.learn(memory, state, task)
        if self._guide is not None:
            return self._guide.learn(memory, state, task)
        if memory.ray is None:
            return memory
        margin = margins_of(state.answer, state, task).amin(1)
        return replace(memory, ray=memory.ray.answered(state, lengths(memory.queried), margin))

    @torch.no_grad()
    def propose(self, state: State, memory: PixelState, task: Task) -> Proposal[PixelState]:
        ray, opening = _opening(memory, state, task)
        delta = torch.zeros_like(state.x0) if ray is None else ray.delta
        if opening.all():
            memory = replace(memory, index=torch.full_like(state.sample, MOVE))
        else:
            memory, step = self._step(memory, state, task, opening)
            delta = torch.where(wide(opening, delta), delta, step)
        x, queried = perturb(state, delta, self.values)
        return propose_values(state, x, replace(memory, queried=queried), task)

    def _step(self, memory: PixelState, state: State, task: Task, opening: Tensor) -> tuple[PixelState, Tensor]:
        """A move if the belief promises enough, else a probe."""
        start, flipped, guide = far(state, FAR), state.margin < 0, self._guide
        most = torch.where(flipped, math.inf, start * 2 ** (state.step / PATIENCE))
        move, forecast = slopes.move(memory, state, most)
        nearer = lengths(move) < (1 - GAIN[guide is not None]) * state.distance
        closer = forecast < (1 - FALL) * memory.at_base.amin(1)
        go = torch.where(flipped, nearer, closer) & ~memory.failed
        over = memory.probed.all(1, keepdim=True)  # all directions: the probes start over
        memory = replace(memory, probed=memory.probed & ~over)
        about = torch.where(flipped, state.distance, start).clamp(min=far(state, STEPS * self.values.step) / PROBE)
        index, probe = slopes.probe(memory, state, about, guide is not None)
        lean = (index == LEAN) & ~go & ~opening
        if guide is not None and lean.any():
            memory, leant = guide.lean(memory, state, task, lean, move)
            probe = torch.where(wide(lean, probe), leant, probe)
        memory = replace(memory, index=torch.where(go | opening, MOVE, index))
        return memory, torch.where(wide(go, move), move, probe)


def _opening(memory: PixelState, state: State, task: Task) -> tuple[Ray | None, Tensor]:
    """The direction of the surrogates or the prior, and which rows follow it, (n,) bool."""
    if memory.lead is not None:
        return memory.lead.ray, follows(state)
    least, most = ALONG[task.grid.kind]
    along = (state.step < least) | ((state.margin >= 0) & (state.step < most))
    return memory.ray, along & (memory.ray is not None)
