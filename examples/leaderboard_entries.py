"""A policy and an attack for the leaderboard of the benchmarks, each in fewer than thirty lines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.comparison.recorder import QueryRecorder
from rlab.core.batched import NoMemory
from rlab.core.env import Proposal, State, Task
from rlab.core.rng import uniform
from rlab.policies.base import MemorylessPolicy, act


@dataclass(frozen=True)
class Sweep(MemorylessPolicy):
    """A policy: distort one patch after another, each with a random entry of the palette; the cleanup restores."""

    def propose(self, state: State, memory: NoMemory, task: Task) -> Proposal[NoMemory]:
        patches = len(task.grid)
        entry = 1 + (uniform(state.seed, state.step, 1) * task.entries).long()
        patch = (state.step % patches)[:, None]
        return act(state, entry * patches + patch, torch.full_like(patch, -1))


def growing_noise(recorder: QueryRecorder, rows: Tensor) -> None:
    """An attack on free pixels: louder and louder noise, then bisection towards the original.

    `recorder` holds samples x in [0, 1]; `ask` sends one row for each, counts it, and keeps the nearest flip.
    """
    noise = torch.randn(recorder.x.shape, generator=torch.Generator().manual_seed(0)).to(recorder.x)
    samples = torch.arange(len(rows))
    for step in range(1, 21):
        recorder.ask((recorder.x + 0.05 * step * noise).clamp(0, 1), samples)
    recorder.reduce()
