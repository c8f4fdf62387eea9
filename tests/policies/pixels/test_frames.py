"""Frames of a clip: the ones that a planted network sees are found by a few queries, and none is left out without need."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import rlab
from rlab.data.batch import Batch
from rlab.policies.pixels.frames import SETTLED, Frames
from rlab.victims.torch_module import TorchVictim


def searched(seen: Tensor) -> tuple[list[int], int]:
    """The frames left when the trials end, and how many there were, if the margin falls by <seen, unit change> (t,)."""
    frames, trials = Frames.every(torch.zeros(1)), 0
    while frames.tried.item() != SETTLED:
        mask = frames.mask(len(seen))
        trials += int(frames.trial)
        frames = frames.after((mask * seen).sum(1) / mask.norm(dim=1), torch.tensor([True]), len(seen))
    return frames.mask(len(seen))[0].nonzero()[:, 0].tolist(), trials


@pytest.mark.parametrize(("stride", "phase"), [(s, p) for s in (2, 4, 8) for p in range(s)])
def test_every_comb_of_frames_is_found(stride: int, phase: int) -> None:
    expected = list(range(phase, 16, stride))
    left, trials = searched(torch.zeros(16).index_fill(0, torch.tensor(expected), 1.0))
    assert left == expected
    assert trials <= 8


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 30])
def test_frames_that_count_alike_all_stay(count: int) -> None:
    left, trials = searched(torch.ones(count))
    assert left == list(range(count))
    assert trials <= 1


def test_rows_are_searched_alone() -> None:
    even, none = torch.zeros(2, 8), torch.ones(8)
    even[0, ::2], even[1] = 1.0, none
    frames, ready = Frames.every(torch.zeros(2)), torch.tensor([True, False])
    for _ in range(6):
        mask = frames.mask(8)
        frames = frames.after((mask * even).sum(1) / mask.norm(dim=1), ready, 8)
    assert frames.mask(8).tolist() == [[1, 0] * 4, [1] * 8]
    assert not frames.trial[1]


class Strided(torch.nn.Module):
    """Two classes by the sum of weighted values of every `stride`-th frame from `phase`."""

    def __init__(self, weights: Tensor, stride: int, phase: int) -> None:
        super().__init__()
        self.weights, self.stride, self.phase = weights, stride, phase

    def forward(self, x: Tensor) -> Tensor:
        seen = slice(self.phase, None, self.stride)
        drop = ((x - 0.5) * self.weights)[:, :, seen].flatten(1).sum(1) / self.weights[:, seen].norm()
        return torch.stack([1 - drop, drop - 1], 1)


@pytest.mark.parametrize(("stride", "phase"), [(1, 0), (2, 1), (4, 2)])
def test_a_model_that_sees_few_frames_flips_by_those_alone(stride: int, phase: int) -> None:
    """The surrogate sees all frames alike; the nearest flip is at a distance of 1, and with all frames at `stride ** 0.5`."""
    weights = torch.randn(3, 8, 1, 1, generator=torch.Generator().manual_seed(0)).sign().expand(3, 8, 6, 6)
    victim, surrogate = (TorchVictim(Strided(weights, *comb), outputs="logits") for comb in ((stride, phase), (1, 0)))
    batch = Batch(torch.full((2, 3, 8, 6, 6), 0.5), torch.zeros(2, dtype=torch.int64))
    result = rlab.attack(victim, batch, palette="pixels", surrogate=surrogate, budget=16, until="budget")
    assert (result.best_within(16) < 1.1).all()
    energy = (result.perturbed - batch.x).square().sum((0, 1, 3, 4))
    assert float(energy[phase::stride].sum() / energy.sum()) > 0.9
