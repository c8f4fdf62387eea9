"""Generators of training samples: a policy with few queries, or the gradient of the model itself.

A generator turns inputs into harder ones with the same label. It draws a palette and a grid for each batch, so that the
model does not memorise one severity or one patch size. The methods that hardening is compared with are in `baselines.py`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.env import Accept, AttackEnv, State, Task, render
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.core.vectors import wide
from rlab.data.batch import Batch
from rlab.filters.base import Filter
from rlab.filters.palette import unit_scale
from rlab.hardening.trainable import divergence, goal_of
from rlab.policies.base import Policy
from rlab.training.episodes import draw_bank
from rlab.victims.torch_module import TorchVictim

Bounds = tuple[float, float]
_BISECTIONS = 16


@dataclass(frozen=True)
class Adversaries:
    """Harder inputs (n, c, *size), and which of them the model now gets wrong (n,)."""

    x: Tensor
    flipped: Tensor


class AdversaryGenerator(ABC):
    """x (n, c, *size), y (n,) or (n, k) -> harder inputs; the seed fixes all randomness."""

    @abstractmethod
    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        """Return harder inputs (n, c, *size)."""

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        """Return harder inputs and whether the model errs on them, which takes one more pass."""
        harder = self.make(victim, x, y, seed)
        return Adversaries(harder, goal_of(victim).reached(victim(harder, "train"), y))

    def over(self, victim: TorchVictim, batch: Batch, chunk: int, seed: int) -> Adversaries:
        """Attack a whole batch, `chunk` samples at a time; the result is on the CPU."""
        x, flipped = [], []
        for number, rows in enumerate(torch.arange(len(batch)).split(chunk)):
            adversaries = self(victim, batch.x[rows].to(victim.device), batch.y[rows].to(victim.device), seed + number)
            x.append(adversaries.x.cpu())
            flipped.append(adversaries.flipped.cpu())
        return Adversaries(torch.cat(x), torch.cat(flipped))


@dataclass(frozen=True)
class Unreachable(Goal):
    """`goal` with a margin that approaches zero and never reaches it, so that the search continues beyond the flip.

    Policies that reduce the distance after a flip would otherwise return to the boundary, where samples teach little.
    """

    goal: Goal

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.elu(self.goal.margin(scores, labels)) + 1

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.elu(self.goal.alternatives(scores, labels)) + 1


@dataclass(frozen=True)
class PerturbationSpace:
    """The perturbations that samples may be made of."""

    bounds: Bounds
    palettes: Sequence[Sequence[str]]
    patches: Sequence[int | Sequence[int]]
    entries: int
    goal: Goal
    channels: tuple[int, ...] = ()  # the group of each channel as in the grid; () if all channels go together
    rate: float | None = None  # samples per second of signals, for filters that depend on frequency
    unit: str = ""  # of the data, for severities given in it
    own: Mapping[str, Filter] = field(default_factory=dict)  # further filters by name, built for the data

    def draw(self, x: Tensor, seed: int) -> tuple[PatchGrid, Tensor]:
        """Draw a grid, and a palette as its bank (n, f + 1, c, *size) for these inputs."""
        rng = random.Random(seed)
        grid = PatchGrid.of(tuple(x.shape[2:]), rng.choice(list(self.patches)), self.channels)
        template = rng.choice(list(self.palettes))
        bank = draw_bank(x, template, self.entries, rng, self.bounds, self.rate, self.unit, self.own)
        return grid, bank


@dataclass(frozen=True)
class PolicyAdversary(AdversaryGenerator):
    """A policy in the attack's environment that continues past the flip, because samples at the boundary teach little.

    After a flip at step s, a row continues for `overshoot` * s steps within its budget. It only moves to lower margins.
    """

    space: PerturbationSpace
    policy: Policy[Any]
    budget: int
    overshoot: float

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        return self(victim, x, y, seed).x

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        grid, bank = self.space.draw(x, seed)
        goal = Unreachable(self.space.goal) if self.policy.reduces else self.space.goal
        task = Task(grid, bank.shape[1] - 1, goal, self.budget)
        env = AttackEnv(lambda x, phase, samples, assignment: victim(x, "train"), task)
        rows, scale = torch.arange(len(x), device=x.device), unit_scale(x, self.space.bounds)[1].flatten()
        state = env.start(y, rows, sample_seeds(seed, 0, len(x)).to(x.device), bank, scale, victim(x, "train"))
        memory = self.policy.begin(state, env.task)
        out, flipped = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
        last = torch.full((len(x),), self.budget - 1, device=x.device)  # the clean prediction is the first query
        for step in range(1, self.budget):
            memory = memory if step == 1 else self.policy.observe(state, memory, env.task)
            proposal = self.policy.propose(state, memory, env.task)
            rule = torch.where(proposal.rule == Accept.IF_NEARER, Accept.IF_BETTER, proposal.rule)
            after, _ = env.step(state, replace(proposal, rule=rule), "train")
            state, memory = _better(state, after), proposal.memory
            out[state.sample] = state.x
            new = state.sample[self.space.goal.reached(state.scores, state.y) & ~flipped[state.sample]]
            flipped[new] = True
            last[new] = last[new].clamp(max=int(step * (1 + self.overshoot)))
            stay = last[state.sample] > step
            if not stay.all():
                state, memory = state[stay], memory[stay]
            if not len(state):
                break
        return Adversaries(out, flipped)


def _better(before: State, after: State) -> State:
    """Keep only moves to a lower margin; the environment itself accepts any move that still flips."""
    worse = ~(after.margin < before.margin)

    def kept(old: Tensor, new: Tensor) -> Tensor:
        return torch.where(wide(worse, new), old, new)

    return replace(
        after,
        assignment=kept(before.assignment, after.assignment),
        x=kept(before.x, after.x),
        scores=kept(before.scores, after.scores),
        margin=kept(before.margin, after.margin),
        distance=kept(before.distance, after.distance),
    )


@dataclass(frozen=True)
class GradientAdversary(AdversaryGenerator):
    """Distortions from the palette that follow the model's gradient, for a few passes per sample.

    A soft assignment gives every patch weights over the palette's entries; the input is the weighted mixture. It starts
    at random: each row gets a region and a mixture of entries, scaled to an L2 drawn from `radius_range`. A share `aimed`
    of the rows then takes `steps` Frank-Wolfe steps towards the assignment that the gradient predicts to be worst within
    that L2; the last such assignment, which is hard, is the sample. The other rows stay random mixtures.
    """

    space: PerturbationSpace
    radius_range: tuple[float, float]
    steps: int = 2
    aimed: float = 0.5
    from_clean: bool = False  # move away from the model's clean output, as TRADES does, instead of from the label

    def make(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Tensor:
        grid, bank = self.space.draw(x, seed)
        change = bank[:, 1:] - x[:, None]
        unit = unit_scale(x, self.space.bounds)[1].flatten()
        cost = grid.collect(change.square()) / unit.view(-1, 1, 1) ** 2
        seeds = sample_seeds(seed, 0, len(x)).to(x.device)
        drawn = uniform(seeds, torch.zeros_like(seeds), 2)
        low, high = self.radius_range  # L2 in the data's range
        room = (low + (high - low) * drawn[:, 0]).square() * x[0].numel()
        weights = random_weights(cost.shape, grid, seed, x.device)
        spent = ((mixed(x, change, weights, grid) - x).flatten(1) / unit[:, None]).square().sum(1)
        weights = weights * (room / spent.clamp(min=1e-12)).sqrt().clamp(max=1)[:, None, None]
        perturbed = mixed(x, change, weights, grid)
        aimed = drawn[:, 1].argsort()[: round(self.aimed * len(x))]
        if self.steps and len(aimed):
            perturbed[aimed] = self._aimed(
                victim, bank[aimed], change[aimed], cost[aimed], room[aimed], weights[aimed], y[aimed], grid
            )
        return perturbed

    def _aimed(
        self,
        victim: TorchVictim,
        bank: Tensor,
        change: Tensor,
        cost: Tensor,
        room: Tensor,
        weights: Tensor,
        y: Tensor,
        grid: PatchGrid,
    ) -> Tensor:
        x, clean = bank[:, 0], victim(bank[:, 0], "train") if self.from_clean else None
        free = cost.new_zeros(len(cost), 1, cost.shape[2])
        chosen = torch.zeros_like(cost[:, 0], dtype=torch.int64)
        for step in range(self.steps):
            at = mixed(x, change, weights, grid)
            gradient = victim.input_gradient(at, lambda scores: self._loss(scores, y, clean), "train")
            gain = grid.collect(change * gradient[:, None])
            chosen = assign(torch.cat([free, gain], 1), torch.cat([free, cost], 1), room)
            corner = torch.zeros_like(torch.cat([free, cost], 1)).scatter(1, chosen[:, None], 1.0)[:, 1:]
            weights = weights.lerp(corner, 2 / (step + 3))
        return render(bank, chosen, grid)

    def _loss(self, scores: Tensor, y: Tensor, clean: Tensor | None) -> Tensor:
        """(n,): the quantity that the adversary maximises."""
        if clean is None:
            return -self.space.goal.margin(scores, y)
        return divergence(clean, scores, self.space.goal.multilabel)


def random_weights(shape: tuple[int, ...], grid: PatchGrid, seed: int, device: torch.device) -> Tensor:
    """Weights (n, f, p) that sum to at most 1 on each patch: each row has one mixture of entries on one region.

    A third of the regions are scattered patches, a third are boxes, and a third cover the whole input.
    """
    n, entries, patches = shape
    rng = torch.Generator(device).manual_seed(seed + 1)

    def rand(*size: int) -> Tensor:
        return torch.rand(size, generator=rng, device=device)

    mixture = rand(n, entries).log().neg() ** 3  # mostly one entry, sometimes several
    mixture = mixture / mixture.sum(1, keepdim=True)
    scattered = rand(n, patches) < rand(n, 1)
    places = torch.stack(torch.meshgrid(*(torch.linspace(0, 1, k, device=device) for k in grid.shape), indexing="ij"))
    middle, side = rand(n, len(places), 1), 0.2 + 0.6 * rand(n, len(places), 1)
    box = ((places.flatten(1)[None] - middle).abs() < side / 2).all(1)
    kind = rand(n, 1)
    region = torch.where(kind < 1 / 3, scattered, torch.where(kind < 2 / 3, box, torch.ones_like(box)))
    return mixture[:, :, None] * region[:, None]


def mixed(x: Tensor, change: Tensor, weights: Tensor, grid: PatchGrid) -> Tensor:
    """x (n, c, *size) plus each patch's mixture of changes (n, f, c, *size), weights (n, f, p)."""
    return x + (change * grid.spread(weights)).sum(1)


def assign(gain: Tensor, cost: Tensor, room: Tensor) -> Tensor:
    """An assignment (n, p) with high gain and a cost within room (n,); gain and cost are (n, f + 1, p), entry 0 is free.

    Bisection finds one price per unit of cost that exceeds the room slightly; the patches with the best ratio are kept.
    """
    gain = gain.masked_fill((cost > room.view(-1, 1, 1)) | (gain < 0), -torch.inf)
    gain[:, 0] = 0.0
    low = torch.zeros_like(room)
    high = (gain / cost.clamp(min=1e-12)).flatten(1).amax(1).clamp(min=1e-12)
    for _ in range(_BISECTIONS):
        price = (low + high) / 2
        exceeds = cost.gather(1, _choice(gain, cost, price)[:, None]).sum((1, 2)) > room
        low, high = torch.where(exceeds, price, low), torch.where(exceeds, high, price)
    chosen = _choice(gain, cost, low)[:, None]
    worth, spent = (v.gather(1, chosen).squeeze(1) for v in (gain, cost))
    order = (worth / spent.clamp(min=1e-12)).argsort(1, descending=True)
    fits = spent.gather(1, order).cumsum(1) <= room[:, None]
    return torch.where(torch.zeros_like(fits).scatter(1, order, fits), chosen.squeeze(1), 0)


def _choice(gain: Tensor, cost: Tensor, price: Tensor) -> Tensor:
    return (gain - price.view(-1, 1, 1) * cost).argmax(1)
