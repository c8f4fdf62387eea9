"""A sound model and its samples for every rank, ways to break them, and the form of the tables of faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from rlab.data.batch import UNBOUNDED, Batch
from rlab.diagnosis import Diagnosis, examine
from rlab.diagnosis.inputs import BYTES as BYTES
from rlab.diagnosis.inputs import CIFAR10 as CIFAR10
from rlab.diagnosis.inputs import HALF as HALF
from rlab.diagnosis.inputs import IMAGENET as IMAGENET
from rlab.diagnosis.inputs import MNIST as MNIST
from rlab.filters import Palette
from rlab.victims.base import Victim
from rlab.victims.callables import CallableVictim
from rlab.victims.reading import Normalise
from rlab.victims.torch_module import TorchVictim

# Every reversed colour is another one, and no two such classes are neighbours.
COLOURS = torch.tensor(
    [
        *[(0.2, 0.5, 0.8), (0.2, 0.2, 0.8), (0.5, 0.2, 0.8), (0.2, 0.8, 0.5)],
        *[(0.8, 0.5, 0.2), (0.8, 0.2, 0.2), (0.8, 0.2, 0.5), (0.5, 0.8, 0.2)],
    ]
)
SIZES = {1: (24,), 2: (6, 5), 3: (4, 5, 6)}
RANKS = tuple(SIZES)
WIDE = (0.0, 255.0)


class Nearest(nn.Module):
    """The class of the nearest prototype, or the last class, "none", if all are far: (b, c, *size) -> (b, k + 1)."""

    def __init__(self, prototypes: Tensor, radius: float = 0.02) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(prototypes)
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        apart = (x[:, None] - self.prototypes).square().flatten(2).mean(2)
        none = torch.full_like(apart[:, :1], self.radius)
        return -8 / self.radius * torch.cat([apart, none], 1)


class Step(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def chain(*steps: nn.Module | Callable[[Tensor], Tensor]) -> nn.Module:
    return nn.Sequential(*[step if isinstance(step, nn.Module) else Step(step) for step in steps])


def function(*steps: nn.Module | Callable[[Tensor], Tensor]) -> CallableVictim:
    """The same as a function of a numpy array."""
    model = chain(*steps)
    return CallableVictim(lambda x: model(torch.from_numpy(x)).detach().numpy())


def prototypes(rank: int, channels: int = 3) -> Tensor:
    """(8, c, *size) in [0, 1]."""
    colours = COLOURS if channels == 3 else torch.linspace(0.1, 0.9, 8)[:, None].expand(8, channels)
    return colours.reshape(-1, channels, *(1,) * rank).repeat(1, 1, *SIZES[rank])


def noisy(at: Tensor, count: int = 48, spread: float = 0.05, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Samples around prototypes (8, c, *size), and their classes."""
    y = torch.arange(count) % 8
    return at[y] + spread * torch.randn(count, *at.shape[1:], generator=Generator().manual_seed(seed)), y


def samples(rank: int, channels: int = 3, count: int = 48, bounds: tuple[float, float] = (0.0, 1.0)) -> Batch:
    x, y = noisy(prototypes(rank, channels), count, 0.05 if channels == 3 else 0.02)
    return Batch(bounds[0] + x.clamp(0, 1) * (bounds[1] - bounds[0]), y, bounds=bounds)


def sound(rank: int, trained_on: Normalise | None = None, channels: int = 3) -> nn.Module:
    """A model that is right on `samples` if they are normalised as in training."""
    at, width = prototypes(rank, channels), 0.02 if channels == 3 else 0.002
    if trained_on is None:
        return Nearest(at, width)
    return Nearest(trained_on(at), width / (sum(trained_on.std) / len(trained_on.std)) ** 2)


def waves() -> Tensor:
    """(8, 1, 64): sines of eight frequencies."""
    time = torch.linspace(0, 2 * math.pi, 64)
    return torch.stack([torch.sin(f * time) for f in range(1, 9)])[:, None]


def signals(gain: float = 1.0, offset: float = 0.0) -> Batch:
    x, y = noisy(waves(), 32, seed=2)
    return Batch(gain * x + offset, y, bounds=UNBOUNDED, unit="mV")


def relabelled(change: Callable[[Tensor], Tensor], batch: Batch | None = None) -> Batch:
    batch = batch or samples(2)
    return Batch(batch.x, change(batch.y))


def only_classes(classes: int) -> Batch:
    """Samples of the first classes."""
    batch = samples(2)
    return batch[[i for i, y in enumerate(batch.y.tolist()) if y < classes]]


def several_labels(rank: int) -> Batch:
    """Two labels per sample: red is strong, blue is strong."""
    return relabelled(lambda y: (COLOURS[y][:, [0, 2]] > 0.4).long(), samples(rank))


def strong(x: Tensor) -> Tensor:
    """(b, 3, *size) -> log-odds (b, 2) that red and blue are strong."""
    return 30 * (x.flatten(2).mean(2)[:, [0, 2]] - 0.4)


def biased(reverse: bool) -> nn.Module:
    """Right with either order of the channels, and more certain if the last channel is weak (or strong)."""
    near = sound(2)

    def scores(x: Tensor) -> Tensor:
        means = x.flatten(2).mean(2)
        certainty = 0.05 + (means[:, 2:] if reverse else 1 - means[:, 2:])
        upright = torch.where((means[:, :1] < means[:, 2:]).view(-1, 1, 1, 1), x, x.flip(1))
        scaled: Tensor = near(upright) * certainty
        return scaled

    return Step(scores)


def by_noise(x: Tensor) -> Tensor:
    """Scores that follow the noise of a sample and not its class."""
    flat = x.flatten(1)
    return torch.stack([(flat[:, 3 * j] * 1000).frac() for j in range(9)], 1) * 9 - 2


def viewing(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Reshapes its input to `shape`, like TSN and TSM, and so accepts any order of axes."""
    return chain(lambda x: x.reshape(-1, *shape), model)


@dataclass(frozen=True)
class Case:
    victim: Callable[[int], Victim]  # of the rank
    findings: str = ""  # "LEVEL NAME" of each, separated by commas
    words: str = ""  # part of the first finding
    batch: Callable[[int], Batch] = samples
    ranks: tuple[int, ...] = (2,)
    queries: int = 12 * 16  # at most
    accuracy: Callable[[float | None], bool] = lambda accuracy: True


def torch_victim(model: nn.Module | Callable[[Tensor], Tensor], **options: Any) -> TorchVictim:
    return TorchVictim(model if isinstance(model, nn.Module) else chain(model), **options)


def normalised(model: nn.Module, by: Normalise, **options: Any) -> TorchVictim:
    return TorchVictim(model, mean=by.mean, std=by.std, **options)


def plain(rank: int) -> Victim:
    return TorchVictim(sound(rank))


def counted(victim: Victim, batch: Batch, palette: Palette | None = None) -> Diagnosis:
    """Examine, and check that all queries are counted."""
    victim.rows["search"] = 5
    report = examine(victim, batch, palette, samples=16)
    assert report.queries == victim.rows["doctor"] == victim.rows.total() - 5
    assert report.healthy == ("error" not in {found.level.value for found in report.findings})
    assert all(found.what and found.change for found in report.findings)
    return report


def summary(report: Diagnosis) -> list[str]:
    return [f"{found.level.value} {found.name}" for found in report.findings]


def parameters(cases: dict[str, Case]) -> list[Any]:
    return [pytest.param(case, rank, id=f"{name}-{rank}") for name, case in cases.items() for rank in case.ranks]


def check(case: Case, rank: int) -> None:
    report = counted(case.victim(rank), case.batch(rank))
    assert summary(report) == (case.findings.split(", ") if case.findings else [])
    text = "".join(f"{found.what} {found.change} {found.flag}" for found in report.findings[:1])
    assert case.words in text
    assert report.queries <= case.queries
    assert case.accuracy(report.accuracy)
