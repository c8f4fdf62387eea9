"""Who makes the samples a model is trained on: an agent with few queries, or the slope of the model itself.

A maker turns inputs into harder ones of the same label. All work on the same ground: a palette and a grid drawn for each
batch, so that a model does not learn one severity or one patch size by heart.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.env import AttackEnv, State, Task, render
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.filters.palette import unit_scale
from rlab.policies.base import Policy
from rlab.training.episodes import draw_palette
from rlab.victims.torch_module import TorchVictim

_BISECTIONS = 16


@dataclass(frozen=True)
class Made:
    """Harder inputs (n, c, *size), and which of them the model now gets wrong (n,)."""

    x: Tensor
    flipped: Tensor


class Maker(ABC):
    """x (n, c, *size), y (n,) or (n, k) -> harder inputs; all chance comes from the seed."""

    @abstractmethod
    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Made: ...


@dataclass(frozen=True)
class PerturbationSpace:
    """What samples may be made of."""

    bounds: tuple[float, float]
    palettes: Sequence[Sequence[str]]
    patches: Sequence[int | Sequence[int]]
    entries: int
    goal: Goal

    def bank(self, x: Tensor, seed: int) -> tuple[Tensor, PatchGrid]:
        """x (n, c, *size) -> its bank (n, f + 1, c, *size) under a palette of its own, and a grid."""
        chance = random.Random(seed)
        grid = PatchGrid.of(tuple(x.shape[2:]), chance.choice(list(self.patches)))
        palette = draw_palette(chance.choice(list(self.palettes)), self.entries, grid.rank, x.shape[1], chance)
        bank = x[:, None].repeat(1, len(palette) + 1, *(1,) * (x.dim() - 1))
        palette.fill(bank, self.bounds, chance.getrandbits(40))
        return bank, grid

    def start(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int, budget: int) -> tuple[AttackEnv, State]:
        bank, grid = self.bank(x, seed)
        task = Task(grid, bank.shape[1] - 1, self.goal, budget)
        env = AttackEnv(lambda x, sample, phase: victim(x, "train"), task)
        scale = unit_scale(x, self.bounds)[1].flatten()
        rows = torch.arange(len(x), device=x.device)
        seeds = sample_seeds(seed, 0, len(x)).to(x.device)
        return env, env.start(y, rows, seeds, bank, scale, victim(x, "train"))


@dataclass(frozen=True)
class AgentMaker(Maker):
    """A policy in the attack's own environment, going on past the flip: a sample at the boundary teaches little.

    A row ends `beyond` times the steps its flip took after it, or when its budget is spent; it keeps what is better.
    """

    ground: PerturbationSpace
    policy: Policy
    budget: int
    beyond: float

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Made:
        env, state = self.ground.start(victim, x, y, seed, self.budget)
        policy = self.policy.suited(env.task.grid)
        state = replace(state, memory=policy.begin(state, env.task))
        out, flipped = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
        last = torch.full((len(x),), self.budget - 1, device=x.device)  # the clean prediction is the first query
        for step in range(1, self.budget):
            after, _ = env.step(state, policy.propose(state, env.task), "train")
            state = _better(state, after)
            out[state.sample] = state.x
            new = state.sample[(state.margin < 0) & ~flipped[state.sample]]
            flipped[new] = True
            last[new] = last[new].clamp(max=int(step * (1 + self.beyond)))
            stay = last[state.sample] > step
            if not stay.all():
                state = state[stay]
            if not len(state):
                break
        return Made(out, flipped)


def _better(before: State, after: State) -> State:
    """After a flip the environment keeps whatever still flips; here a row moves only to a lower margin."""
    worse = ~(after.margin < before.margin)
    held = {
        name: torch.where(worse.view(-1, *(1,) * (new.dim() - 1)), old, new)
        for name in ("assignment", "x", "scores", "margin", "distance")
        for old, new in [(getattr(before, name), getattr(after, name))]
    }
    return replace(after, **held)


@dataclass(frozen=True)
class SlopeMaker(Maker):
    """The worst assignment within a distance, by the slope of the margin: what an agent would find with many queries.

    Each look costs one forward and one backward pass. Which entry each patch takes, if any, follows from the drop in
    margin it promises and a price on its squared L2, the same for all patches, found by bisection so that the whole
    stays within a distance drawn for each row between `reach`: a ladder of severities.
    """

    ground: PerturbationSpace
    reach: tuple[float, float]
    looks: int = 3

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Made:
        env, state = self.ground.start(victim, x, y, seed, 0)
        grid, goal = env.task.grid, self.ground.goal
        change = state.bank - state.x0[:, None]
        cost = grid.total(change.square().sum(2)) / state.scale.view(-1, 1, 1) ** 2
        room = self._room(state).square()
        now = x
        for _ in range(self.looks):
            slope = victim.input_gradient(now, lambda scores: goal.margin(scores, y), "train")
            gain = -grid.total((change * slope[:, None]).sum(2))
            now = render(state.bank, assign(gain, cost, room), grid)
        return Made(now, goal.reached(victim(now, "train"), y))

    def _room(self, state: State) -> Tensor:
        """(n,) how far each row may go, in L2 of the data's range."""
        low, high = self.reach
        share = low + (high - low) * uniform(state.seed, state.step, 1).squeeze(1)
        return share * state.x[0].numel() ** 0.5


def assign(gain: Tensor, cost: Tensor, room: Tensor) -> Tensor:
    """An assignment (n, p) of much gain whose cost stays within room (n,); gain and cost are (n, f + 1, p), entry 0 free.

    One price on cost for all patches, found by bisection, picks slightly too much; the most worthy of that is kept.
    """
    gain = gain.masked_fill((cost > room.view(-1, 1, 1)) | (gain < 0), -torch.inf)
    gain[:, 0] = 0.0
    low = torch.zeros_like(room)
    high = (gain / cost.clamp(min=1e-12)).flatten(1).amax(1).clamp(min=1e-12)
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        dear = cost.gather(1, _choice(gain, cost, price)[:, None]).sum((1, 2)) > room
        low, high = torch.where(dear, price, low), torch.where(dear, high, price)
    chosen = _choice(gain, cost, low)[:, None]
    worth, spent = (v.gather(1, chosen).squeeze(1) for v in (gain, cost))
    order = (worth / spent.clamp(min=1e-12)).argsort(1, descending=True)
    fits = spent.gather(1, order).cumsum(1) <= room[:, None]
    return torch.where(torch.zeros_like(fits).scatter(1, order, fits), chosen.squeeze(1), 0)


def _choice(gain: Tensor, cost: Tensor, price: Tensor) -> Tensor:
    return (gain - price.view(-1, 1, 1) * cost).argmax(1)
