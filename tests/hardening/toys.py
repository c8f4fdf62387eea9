"""A model with a planted shortcut: one patch shows the label clearly, all others faintly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlab.data.batch import Batch
from rlab.hardening.evaluation import RobustnessMeasurement, measure_robustness
from rlab.hardening.options import EvaluationOptions, HardenOptions
from rlab.hardening.report import Hardened
from rlab.hardening.run import Splits, harden, run_hardening
from rlab.progress import quiet
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim
from tests.helpers import CHANNELS, PATCHES, SIZES, inside, make_grid

PALETTE = ["dead_pixel@1.0", "illuminate+@1.0"]  # both ends of the range, so that the shortcut can be inverted


def options(rank: int, **more: Any) -> dict[str, Any]:
    """Options that unlearn the shortcut in a second."""
    shared = {"palettes": [PALETTE], "entries": 2, "patches": [list(PATCHES[rank])], "training_batch": 32}
    trained = {"max_clean_drop": 0.02, "learning_rate": 0.1, "epochs": 5}
    return {**shared, **trained, "adversary": "random", "adversary_budget": 7, **more}


def evaluation(rank: int, **attack: Any) -> EvaluationOptions:
    """Options that measure in a second; `attack` overrides those of the attack."""
    declared = {"palette": PALETTE, "patch": PATCHES[rank], "policy": "random", "budget": 50, "chunk": 64} | attack
    return check(EvaluationOptions, {"attack": declared, "square_budget": 10, "pgd_steps": 2})


class Toy(nn.Module):
    """A linear model that counts the inputs of all its copies."""

    seen: ClassVar[list[int]] = []

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(len(weight), 2)
        with torch.no_grad():
            self.linear.weight.copy_(torch.stack([-weight, weight]))
            self.linear.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        scores: Tensor = self.linear(x.flatten(1) - 0.5)
        return scores


@dataclass(frozen=True)
class Shortcut:
    victim: TorchVictim
    batch: Batch
    test: Batch
    patch: int

    def swapped(self) -> Batch:
        """The test samples with the shortcut of the other label."""
        x = self.test.x.clone()
        at = inside(make_grid(self.test.rank).box(self.patch))
        x[at] = 1 - x[at]
        return Batch(x, self.test.y)


def shortcut(rank: int, n: int = 128, seed: int = 0) -> Shortcut:
    """A model with a large weight on the shortcut and small ones on the pattern elsewhere."""
    grid, rng = make_grid(rank), torch.Generator().manual_seed(seed)
    patch = len(grid) // 2
    shape = (CHANNELS[rank], *SIZES[rank])
    pattern = (torch.rand(shape, generator=rng) < 0.5).float() * 2 - 1
    y = torch.arange(2 * n) % 2
    sign = (2.0 * y - 1).view(-1, *(1,) * (rank + 1))
    x = 0.5 + 0.15 * sign * pattern + 0.1 * torch.randn((2 * n, *shape), generator=rng)
    x[inside(grid.box(patch))] = (sign + 1) / 2
    x = x.clamp(0, 1)
    weight = 0.05 * pattern
    weight[inside(grid.box(patch))] = 1.0
    victim = TorchVictim(Toy(weight.flatten()))
    return Shortcut(victim, Batch(x[:n], y[:n]), Batch(x[n:], y[n:]), patch)


def accuracy(victim: TorchVictim, batch: Batch) -> float:
    return float((victim(batch.x).argmax(1) == batch.y).float().mean())


def hardened(toy: Shortcut, rank: int = 1, **values: Any) -> Hardened:
    """The toy's model hardened on its batch and validated on its test samples; `values` override anything."""
    given: dict[str, Any] = (
        {"model": toy.victim, "data": toy.batch, "validation": toy.test, "progress": quiet} | options(rank) | values
    )
    return harden(given.pop("model"), given.pop("data"), **given)


@cache
def measured_toy(rank: int) -> Hardened:
    """A hardened model, measured before and after on eight samples; shared by read-only tests."""
    toy, chosen = shortcut(rank, n=40), check(HardenOptions, options(rank, training_batch=16, epochs=6))
    return run_hardening(
        toy.victim, Splits(toy.batch, toy.test[:8], toy.test[8:]), chosen, evaluation(rank), progress=quiet
    )


def measure(toy: Shortcut, test: Batch, chosen: EvaluationOptions) -> RobustnessMeasurement:
    """The toy's model, measured on these samples."""
    return measure_robustness(toy.victim, test, chosen)
