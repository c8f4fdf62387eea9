"""Free pixels: the search for the smallest perturbation of all values, by surrogates' gradients or by queries alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rlab.core.env import IF_NEARER, Memory, Proposal, State, Task
from rlab.core.vectors import lengths, wide
from rlab.policies.base import Policy
from rlab.policies.pixels import belief as believed
from rlab.policies.pixels.belief import LEAN, MOVE, far
from rlab.policies.pixels.labels import LabelSearch
from rlab.policies.pixels.surrogates import Guide
from rlab.priors.base import NoPrior, Prior
from rlab.priors.surrogates import SurrogatePrior

GAIN = {True: 0.02, False: 0.05}  # of the distance, with surrogates and without, for which a move is asked after a flip
FALL = 0.15  # of the margin, for which a move is asked before the first flip
FAR = 0.01  # how much every value may change before the first flip, to begin with
PATIENCE = 100  # queries after which that is twice as much


@dataclass(frozen=True)
class PixelPolicy(Policy):
    """Values stay within `bounds`. With surrogates the first queries follow them until three were asked and one flipped.

    Where the model tells only labels, `LabelSearch` asks, which begins with the directions of `opening` where no surrogates are.
    """

    bounds: tuple[float, float]
    prior: SurrogatePrior | None = field(default=None, repr=False)
    opening: Prior = field(default_factory=NoPrior, repr=False)
    by_labels = True

    @property
    def reduces(self) -> bool:
        return True

    def __str__(self) -> str:
        return "pixels" if self.prior is None else f"pixels with {self.prior}"

    @property
    def _guide(self) -> Guide | None:
        return None if self.prior is None else Guide(self.prior, self.bounds)

    @property
    def _labels(self) -> LabelSearch:
        return LabelSearch(self.opening if self.prior is None else self.prior)

    def begin(self, state: State, task: Task) -> Memory:
        if task.labels:
            return self._labels.begin(state, task)
        memory = believed.begin(state, task)
        return memory if self._guide is None else memory | self._guide.begin(state, task.goal)

    @torch.no_grad()
    def propose(self, state: State, task: Task) -> Proposal:
        memory = dict(state.memory)
        if task.labels:
            return self._proposal(memory, state, task, self._labels.ask(memory, state, task))
        if int(state.step[0]) > 0:
            believed.learn(memory, state, task)
        flipped, guide = state.margin < 0, self._guide
        opening = torch.zeros_like(flipped) if guide is None else guide.opening(state)
        delta = torch.zeros_like(state.x0)
        memory["index"] = torch.full_like(state.sample, MOVE)
        if guide is not None and opening.any():
            delta = guide.open(memory, state, task, opening)
        if not opening.all():
            delta = torch.where(wide(opening, delta), delta, self._step(memory, state, task, opening, flipped))
        return self._proposal(memory, state, task, delta)

    def _proposal(self, memory: believed.Belief, state: State, task: Task, delta: Tensor) -> Proposal:
        scale = wide(state.scale, delta)
        x = (state.x0 + scale * delta).clamp(*self.bounds)
        changed = (task.grid.total((x != state.x0).any(1).to(torch.float32)) > 0).to(torch.int64)
        memory["asked"] = (x - state.x0) / scale
        return Proposal(changed, torch.full_like(state.sample, IF_NEARER), memory, x)

    def _step(self, memory: believed.Belief, state: State, task: Task, opening: Tensor, flipped: Tensor) -> Tensor:
        """A move where the belief promises enough, else a probe."""
        start = far(state, FAR)
        most = torch.where(flipped, math.inf, start * 2 ** (state.step / PATIENCE))
        move, forecast = believed.move(memory, state, most)
        nearer = lengths(move) < (1 - GAIN[self.prior is not None]) * state.distance
        closer = forecast < (1 - FALL) * memory["at_base"].amin(1)
        go = torch.where(flipped, nearer, closer) & ~memory["failed"]
        distance, guide = torch.where(flipped, state.distance, start), self._guide
        index, probe = believed.probe(memory, state, distance, guide is not None)
        lean = (index == LEAN) & ~go & ~opening
        if guide is not None and lean.any():
            probe = torch.where(wide(lean, probe), guide.lean(memory, state, task, lean, move), probe)
        memory["index"] = torch.where(go | opening, MOVE, index)
        return torch.where(wide(go, move), move, probe)
