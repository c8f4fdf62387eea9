"""Who makes the samples a model is trained on: a policy with few queries, or the gradient of the model itself.

A generator turns inputs into harder ones of the same label, in a space of perturbations: a palette and a grid drawn for
each batch, so that a model does not learn one severity or one patch size by heart. What hardening is compared with is
here too: random distortion that does not look at the model, and gradient steps within a ball (FGSM, PGD).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.env import IF_BETTER, IF_NEARER, AttackEnv, State, Task, render
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters.palette import unit_scale
from rlab.policies.base import Policy
from rlab.training.episodes import draw_palette
from rlab.victims.torch_module import TorchVictim

Bounds = tuple[float, float]
Norm = Literal["l2", "linf"]
_BISECTIONS = 16


@dataclass(frozen=True)
class Adversaries:
    """Harder inputs (n, c, *size), and which of them the model now gets wrong (n,)."""

    x: Tensor
    flipped: Tensor


class AdversaryGenerator(ABC):
    """x (n, c, *size), y (n,) or (n, k) -> harder inputs; all chance comes from the seed."""

    @property
    def most(self) -> int | None:
        """Rows a sample takes at most; None where nobody knows."""
        return None

    @abstractmethod
    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries: ...

    def over(self, victim: TorchVictim, batch: Batch, chunk: int, seed: int) -> Adversaries:
        """Of a whole batch, so many samples at once; on the CPU."""
        x, flipped = [], []
        for number, rows in enumerate(torch.arange(len(batch)).split(chunk)):
            adversaries = self(victim, batch.x[rows].to(victim.device), batch.y[rows].to(victim.device), seed + number)
            x.append(adversaries.x.cpu())
            flipped.append(adversaries.flipped.cpu())
        return Adversaries(torch.cat(x), torch.cat(flipped))


@dataclass(frozen=True)
class Unreachable(Goal):
    """`goal` with a margin that falls towards zero and never below it: one nat beyond the flip is aimed at, then more.

    For policies that reduce the distance once their goal is reached: training samples are to be deep, not near.
    """

    goal: Goal

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.elu(self.goal.margin(scores, labels)) + 1

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        return F.elu(self.goal.alternatives(scores, labels)) + 1


@dataclass(frozen=True)
class PerturbationSpace:
    """What samples may be made of."""

    bounds: Bounds
    palettes: Sequence[Sequence[str]]
    patches: Sequence[int | Sequence[int]]
    entries: int
    goal: Goal

    def start(
        self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int, policy: Policy | None = None, budget: int = 0
    ) -> tuple[AttackEnv, State]:
        """An environment with a palette and a grid drawn for these inputs, and its first state."""
        rng = random.Random(seed)
        grid = PatchGrid.of(tuple(x.shape[2:]), rng.choice(list(self.patches)))
        palette = draw_palette(rng.choice(list(self.palettes)), self.entries, grid.rank, x.shape[1], rng)
        bank = x[:, None].repeat(1, len(palette) + 1, *(1,) * (x.dim() - 1))
        palette.fill(bank, self.bounds, rng.getrandbits(40))
        goal = Unreachable(self.goal) if policy is not None and policy.suited(grid).reduces else self.goal
        env = AttackEnv(lambda x, sample, phase: victim(x, "train"), Task(grid, len(palette), goal, budget))
        scale = unit_scale(x, self.bounds)[1].flatten()
        rows = torch.arange(len(x), device=x.device)
        seeds = sample_seeds(seed, 0, len(x)).to(x.device)
        return env, env.start(y, rows, seeds, bank, scale, victim(x, "train"))


@dataclass(frozen=True)
class PolicyAdversary(AdversaryGenerator):
    """A policy in the attack's own environment, going on past the flip: a sample at the boundary teaches little.

    A row ends `overshoot` times the steps its flip took after it, or when its budget is spent; it keeps what is better.
    """

    space: PerturbationSpace
    policy: Policy
    budget: int
    overshoot: float

    @property
    def most(self) -> int:
        return self.budget

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        env, state = self.space.start(victim, x, y, seed, self.policy, self.budget)
        policy = self.policy.suited(env.task.grid)
        state = replace(state, memory=policy.begin(state, env.task))
        out, flipped = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
        last = torch.full((len(x),), self.budget - 1, device=x.device)  # the clean prediction is the first query
        for step in range(1, self.budget):
            proposal = policy.propose(state, env.task)
            keep = torch.where(proposal.keep == IF_NEARER, IF_BETTER, proposal.keep)
            after, _ = env.step(state, replace(proposal, keep=keep), "train")
            state = _better(state, after)
            out[state.sample] = state.x
            new = state.sample[self.space.goal.reached(state.scores, state.y) & ~flipped[state.sample]]
            flipped[new] = True
            last[new] = last[new].clamp(max=int(step * (1 + self.overshoot)))
            stay = last[state.sample] > step
            if not stay.all():
                state = state[stay]
            if not len(state):
                break
        return Adversaries(out, flipped)


def _better(before: State, after: State) -> State:
    """After a flip the environment keeps whatever still flips; here a row moves only to a lower margin."""
    worse = ~(after.margin < before.margin)
    kept = {
        name: torch.where(worse.view(-1, *(1,) * (new.dim() - 1)), old, new)
        for name in ("assignment", "x", "scores", "margin", "distance")
        for old, new in [(getattr(before, name), getattr(after, name))]
    }
    return replace(after, **kept)


@dataclass(frozen=True)
class GradientAdversary(AdversaryGenerator):
    """The worst assignment within a distance, by the gradient of the margin: what a policy would find with many queries.

    Each step costs one forward and one backward pass. Which entry each patch takes, if any, follows from the drop in
    margin it promises and a price on its squared L2, the same for all patches, found by bisection so that the whole
    stays within a distance drawn for each row from `radius_range`: a ladder of severities.
    """

    space: PerturbationSpace
    radius_range: tuple[float, float]
    steps: int = 3

    @property
    def most(self) -> int:
        return self.steps + 2

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        env, state = self.space.start(victim, x, y, seed)
        grid, goal = env.task.grid, self.space.goal
        change = state.bank - state.x0[:, None]
        cost = grid.total(change.square().sum(2)) / state.scale.view(-1, 1, 1) ** 2
        low, high = self.radius_range  # of L2, in the data's range
        share = low + (high - low) * uniform(state.seed, state.step, 1).squeeze(1)
        room = share.square() * x[0].numel()
        perturbed = x
        for _ in range(self.steps):
            gradient = victim.input_gradient(perturbed, lambda scores: goal.margin(scores, y), "train")
            gain = -grid.total((change * gradient[:, None]).sum(2))
            perturbed = render(state.bank, assign(gain, cost, room), grid)
        return Adversaries(perturbed, goal.reached(victim(perturbed, "train"), y))


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


@dataclass(frozen=True)
class AugmentationGenerator(AdversaryGenerator):
    """Random entries on a random share of the patches: the palette without anybody who looks at the model."""

    space: PerturbationSpace

    @property
    def most(self) -> int:
        return 2

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        env, state = self.space.start(victim, x, y, seed)
        patches = len(env.task.grid)
        drawn = uniform(state.seed, state.step, 2 * patches + 1)
        distorted = drawn[:, 1 : patches + 1] < drawn[:, :1]  # a row's own share of patches
        entry = 1 + (drawn[:, patches + 1 :] * env.task.entries).long()
        perturbed = render(state.bank, torch.where(distorted, entry, 0), env.task.grid)
        return Adversaries(perturbed, self.space.goal.reached(victim(perturbed, "train"), y))


@dataclass(frozen=True)
class ProjectedGradient(AdversaryGenerator):
    """Steepest steps on the margin's loss within a ball (Goodfellow 2015, Madry 2018, https://arxiv.org/abs/1706.06083).

    `radius` is in the data's range, or in a sample's amplitude where there is none. One step of the whole radius without
    a random start is FGSM; `steps` of `step_size` with one is PGD.
    """

    bounds: Bounds
    goal: Goal
    radius: float
    norm: Norm = "linf"
    steps: int = 1
    step_size: float | None = None  # the radius for one step, a quarter of it for several
    random_start: bool = False

    def __post_init__(self) -> None:
        if not self.radius > 0 or self.steps < 1 or self.norm not in ("l2", "linf"):
            options = f"radius {self.radius}, {self.steps} steps and norm {self.norm!r}"
            raise InputError(f"expected a radius above 0, at least one step and norm l2 or linf, got {options}")

    def __call__(self, victim: TorchVictim, x: Tensor, y: Tensor, seed: int) -> Adversaries:
        scale = unit_scale(x, self.bounds)[1]
        step_size = self.step_size or (self.radius if self.steps == 1 else self.radius / 4)
        delta = self._start(x, seed)
        for _ in range(self.steps):
            perturbed = (x + delta * scale).clamp(*self.bounds)
            gradient = victim.input_gradient(perturbed, lambda scores: _loss(scores, y, self.goal), "train") * scale
            delta = self._project(delta + step_size * self._steepest(gradient))
            delta = ((x + delta * scale).clamp(*self.bounds) - x) / scale
        perturbed = (x + delta * scale).clamp(*self.bounds)
        return Adversaries(perturbed, self.goal.reached(victim(perturbed, "train"), y))

    @property
    def most(self) -> int:
        return self.steps + 1

    def _start(self, x: Tensor, seed: int) -> Tensor:
        if not self.random_start:
            return torch.zeros_like(x)
        rng = torch.Generator(x.device).manual_seed(seed)
        if self.norm == "linf":
            return self.radius * (2 * torch.rand(x.shape, generator=rng, device=x.device) - 1)
        direction = self._steepest(torch.randn(x.shape, generator=rng, device=x.device))
        length = torch.rand((len(x), *(1,) * (x.dim() - 1)), generator=rng, device=x.device)
        return direction * self.radius * length

    def _steepest(self, gradient: Tensor) -> Tensor:
        along = F.normalize(gradient.flatten(1), dim=1).view_as(gradient)
        return gradient.sign() if self.norm == "linf" else along

    def _project(self, delta: Tensor) -> Tensor:
        linf = self.norm == "linf"
        return delta.clamp(-self.radius, self.radius) if linf else delta.renorm(2, 0, self.radius)


def _loss(scores: Tensor, y: Tensor, goal: Goal) -> Tensor:
    """(n,) the usual cross-entropy where a sample has one label, else what the goal's margin lacks."""
    if goal.multilabel:
        return -goal.margin(scores, y)
    return -scores.gather(1, y[:, None]).squeeze(1)


def pgd(bounds: Bounds, goal: Goal, radius: float, norm: Norm = "linf", steps: int = 10) -> ProjectedGradient:
    """Ten steps of a quarter of the radius from a random start."""
    return ProjectedGradient(bounds, goal, radius, norm, steps, random_start=True)
