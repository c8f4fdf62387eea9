"""Models of three ranks that cost about as much as a ResNet-20 on 32 x 32 pixels (41 million multiply-adds for each row)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from benchmarks.victims.residual import cifar_resnet
from rlab.victims.zoo import small_cnn

HALVES = "greedy"  # looks at every patch before it acts, so it gets few: two along each axis


@dataclass(frozen=True)
class Case:
    """A model and the shape of its inputs."""

    rank: int
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # (c, *size)


CASES = (
    Case(1, "1D convolutions, 2 x 1000", lambda: small_cnn(1, 2, 10, width=44), (2, 1000)),
    Case(2, "ResNet-20, 3 x 32 x 32", lambda: cifar_resnet(20), (3, 32, 32)),
    Case(3, "3D convolutions, 3 x 8 x 32 x 32", lambda: small_cnn(3, 3, 10, width=20), (3, 8, 32, 32)),
)


@dataclass(frozen=True)
class Size:
    samples: int
    budget: int
    repeats: int
    policies: tuple[str, ...]


FULL = Size(32, 50, 3, ("random", "square", "belief", "auto", HALVES))
QUICK = Size(32, 30, 1, ("random", "square", "auto"))
