"""What an attack costs beyond the model's own time: attack wall time over the forward time of the same rows, any rank.

    python -m benchmarks.overhead --quick
    python -m benchmarks.overhead --one-thread --write

Every call of an attack is made on the bare model a second time, and only that is the model's own time. Models have the cost
of a ResNet-20 on 32 x 32 pixels (about 41 million multiply-adds a row) and random weights; labels are their predictions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from torch import Tensor, nn

import rlab
from benchmarks.common import RESULTS, circumstances, finish, table
from rlab.core.defaults import PALETTES
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.zoo import cifar_resnet, small_cnn

SEED = 0
HALVES = "greedy"  # looks at every patch before it acts, so it gets few: two along each axis


class Repeated(nn.Module):
    """Answers every call twice and times the second: the model's own time, under the very conditions of the attack."""

    def __init__(self, net: nn.Module, clock: Callable[[], float]) -> None:
        super().__init__()
        self.net, self.clock = net, clock
        self.rows, self.calls, self.seconds = 0, 0, 0.0

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.net(x)
        began = self.clock()
        self.net(x)
        self.seconds += self.clock() - began
        self.rows, self.calls = self.rows + len(x), self.calls + 1
        return answer


@dataclass(frozen=True)
class Part:
    """One rank: a model and the shape of its inputs."""

    rank: int
    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # (c, *size)


PARTS = (
    Part(1, "1D convolutions, 2 x 1000", lambda: small_cnn(1, 2, 10, width=44), (2, 1000)),
    Part(2, "ResNet-20, 3 x 32 x 32", lambda: cifar_resnet(20), (3, 32, 32)),
    Part(3, "3D convolutions, 3 x 8 x 32 x 32", lambda: small_cnn(3, 3, 10, width=20), (3, 8, 32, 32)),
)


@dataclass(frozen=True)
class Measured:
    attack: float  # seconds
    forward: float  # seconds of the same calls on the bare model
    rows: int
    calls: int

    @property
    def ratio(self) -> float:
        return self.attack / self.forward


def measure(part: Part, policy: str, samples: int, budget: int, seed: int, clock: Callable[[], float]) -> Measured:
    torch.manual_seed(seed)
    net = part.make().eval()
    x = torch.rand(samples, *part.shape)
    with torch.inference_mode():
        batch = rlab.Batch(x=x, y=net(x).argmax(1))
    repeated = Repeated(net, clock)
    victim = rlab.TorchVictim(repeated, outputs="logits")
    patch = [length // 2 for length in batch.size] if policy == HALVES else None
    # the palette of images suits every rank, and makes the three comparable
    shared: dict[str, Any] = {"palette": PALETTES["image"], "chunk": samples, "seed": seed}
    attack = make_attack(batch, patch=patch, budget=budget, policy=policy, until="budget", **shared)
    began = clock()
    result = run_attack(attack, victim, batch)
    spent = clock() - began - repeated.seconds
    assert repeated.rows == int(result.queries.sum())
    return Measured(spent, repeated.seconds, repeated.rows, repeated.calls)


def page(rows: list[list[str]], told: str) -> str:
    headings = ("model and input", "policy", "rows asked", "calls", "attack, s", "forward, s", "ratio")
    note = (
        "Attack time over the time of the same forward calls on the bare model; medians over repeats. 1 is no overhead."
    )
    return f"# Overhead of an attack\n\n{note}\n\n{table(headings, rows)}\n\n{told}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows, policies and repeats: under a minute")
    parser.add_argument("--write", action="store_true", help="write the table to results/overhead.md")
    parser.add_argument(
        "--one-thread",
        action="store_true",
        help="one thread, timed by its processor time: wall time on an idle machine, and steady on a busy one",
    )
    given = parser.parse_args()
    if given.one_thread:
        torch.set_num_threads(1)
    clock = process_time if given.one_thread else perf_counter
    samples, budget, repeats = (32, 30, 1) if given.quick else (64, 100, 3)
    policies = ("random", "square", "auto") if given.quick else ("random", "square", "belief", "auto", HALVES)
    rows, figures = [], {}
    for part in PARTS:
        ratios = []
        for policy in policies:
            found = [measure(part, policy, samples, budget, SEED + i, clock) for i in range(repeats)]
            middle = sorted(found, key=lambda one: one.ratio)[repeats // 2]
            ratios.append(middle.ratio)
            figures[f"own_share_{policy}_rank{part.rank}"] = middle.ratio - 1
            times = [f"{middle.attack:.2f}", f"{middle.forward:.2f}", f"{middle.ratio:.3f}"]
            rows.append([part.name, policy, str(middle.rows), str(middle.calls), *times])
            print(" | ".join(rows[-1]), flush=True)
        figures[f"overhead_rank{part.rank}"] = median(ratios)
    if given.write:
        RESULTS.mkdir(exist_ok=True)
        threads = (
            "processor time of one thread" if given.one_thread else f"wall time, {torch.get_num_threads()} threads"
        )
        (RESULTS / "overhead.md").write_text(page(rows, f"{threads}; {circumstances(SEED)}"), encoding="utf-8")
    finish(figures)


if __name__ == "__main__":
    main()
