"""Where a controller of the belief search is trained and measured: victims attacked with candidates that somebody chooses.

The height of a row is the logarithm of its best flip's distance, before the first flip that of everything distorted; the mean
height over the points of the curve is the area under the anytime curve. Shapes: T steps, n rows, c candidates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import Field
from torch import Tensor

from rlab.core.env import Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.data.batch import Batch
from rlab.data.load import DataOptions
from rlab.policies.auto import make_prior
from rlab.policies.belief.controller import Candidates
from rlab.policies.belief.geometry import distance_of
from rlab.policies.belief.policy import BeliefPolicy
from rlab.storage.config import Options
from rlab.training.config import Patch
from rlab.training.episodes import EpisodeSampler, teachable
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions

CURVE = (3, 5, 8, 12, 20, 50, 100)  # queries at which the anytime curve is read
Choose = Callable[[Candidates], Tensor]  # candidates of n rows -> which to take (n,)


class ControllerSource(Options):
    """Models and data of one kind; every model meets every patch size and prior. Palettes as in every training."""

    models: tuple[ModelOptions, ...] = Field(min_length=1)
    data: DataOptions
    palettes: tuple[tuple[str, ...], ...] = Field(min_length=1)
    patches: tuple[Patch, ...] = Field(min_length=1)
    entries: int = Field(5, ge=1)
    weight: float = Field(1.0, gt=0)  # how often it is trained on
    priors: tuple[str, ...] = ("none",)  # none, trained (the shipped one that fits the data), or a file


@dataclass
class Arena:
    """One victim with its inputs, patches and prior: where rows can be attacked."""

    name: str
    sampler: EpisodeSampler
    policy: BeliefPolicy


@dataclass(frozen=True)
class Episode:
    """What n rows went through."""

    seen: list[Candidates]  # T + 1
    action: Tensor  # (T, n)
    reward: Tensor  # (T, n)
    failed: Tensor  # (T, n) bool: terminated by the model's failure
    height: Tensor  # (T + 1, n): log distance of the best flip, of everything distorted before the first


def make_arenas(
    source: ControllerSource, victims: Sequence[Victim], batch: Batch, steps: int, seed: int
) -> list[Arena]:
    """One for every victim, patch size and prior; each draws from the inputs its victim gets right."""
    arenas: list[Arena] = []
    for number, victim in enumerate(victims):
        x, y = batch.x.to(victim.device), batch.y.to(victim.device)
        grids = [PatchGrid.of(batch.size, patch) for patch in source.patches]
        tasks = [Task(grid, source.entries, Untargeted(), steps + 1) for grid in grids]
        rows = teachable(victim, x, y, tasks[0])
        for task in tasks:
            sampler = EpisodeSampler(victim, x[rows], y[rows], batch.bounds, task, source.palettes)
            rng = random.Random(seed * 1000 + len(arenas))
            sampler = replace(sampler, rng=rng, rate=batch.rate, unit=batch.unit)
            for prior in source.priors:
                name = f"{source.models[number].name} {task.grid.patch} {prior}"
                arenas.append(
                    Arena(
                        name, sampler, BeliefPolicy(prior=make_prior(prior).suited(tuple(x.shape[1:])), controller=None)
                    )
                )
    return arenas


def area(height: Tensor) -> Tensor:
    """(T + 1, n) log distances after the clean query and each step -> (n,): their mean over the points of the curve."""
    return torch.stack([height[q - 1] for q in CURVE if q <= len(height)]).mean(0)


@torch.no_grad()
def run_episode(arena: Arena, rows: int, steps: int, choose: Choose) -> Episode:
    """`rows` fresh inputs, attacked for so many queries with the candidates that `choose` takes, (n,)."""
    policy, task, env = arena.policy, arena.sampler.task, arena.sampler.env
    state = arena.sampler.fresh(rows)
    state = replace(state, memory=policy.begin(state, task))
    everything = (
        distance_of(state.memory["cost"].amax(1).sum(1), task.distance, state.x[0].numel()).clamp(min=1e-9).log()
    )
    seen, actions, failures, heights = [], [], [], [everything]
    over = torch.zeros(rows, dtype=torch.bool, device=state.x.device)
    for _ in range(steps):
        memory, candidates = policy.consider(state, task)
        seen.append(candidates)
        actions.append(choose(candidates))
        state, outcome = env.step(state, policy.decide(state, memory, candidates, actions[-1]))
        over = over | outcome.failed
        failures.append(over)
        best = state.distance.clamp(min=1e-9).log()
        heights.append(torch.where(state.margin < 0, torch.minimum(best, everything), everything))
    seen.append(policy.consider(state, task)[1])
    height = torch.stack(heights)
    return Episode(seen, torch.stack(actions), height[:-1] - height[1:], torch.stack(failures), height)


def follow_rule(candidates: Candidates) -> Tensor:
    """(n,): the fixed rule's own candidate."""
    return torch.zeros_like(candidates.legal[:, 0], dtype=torch.long)


def measure_area(arena: Arena, choose: Choose, rows: int, steps: int, seed: int) -> Tensor:
    """(n,): the area under the anytime curve; of one seed, inputs, palettes and draws are the same whatever `choose` takes."""
    fresh = replace(arena.sampler, rng=random.Random(seed))
    return area(run_episode(replace(arena, sampler=fresh), rows, steps, choose).height)
