"""What an attack costs beyond the model's own time: attack time over the forward time of the same rows, for any rank.

python -m benchmarks.overhead                # write results/overhead.md
python -m benchmarks.overhead --one-thread   # one thread, timed by its processor time: steady on a busy machine
python -m benchmarks.overhead --quick        # fewer rows, policies and repeats
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor, nn

import rlab
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.overhead.cases import CASES, FULL, HALVES, QUICK, Case, Size
from benchmarks.raw import Raw, Store
from benchmarks.tables import section, table
from rlab.core.defaults import PALETTES
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack

SEED = 0
RULES = """
Attack time over the time of the same forward calls on the bare model; medians over repeats. 1 is no overhead. Every
call of an attack is made on the bare model a second time, and only that counts as the model's own time. Models have
random weights, and labels are their predictions.
"""
Clock = Callable[[], float]


class Repeated(nn.Module):
    """Run every call twice and time the second: the model's own time under the conditions of the attack."""

    def __init__(self, net: nn.Module, clock: Clock) -> None:
        super().__init__()
        self.net, self.clock = net, clock
        self.rows, self.calls, self.seconds = 0, 0, 0.0

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.net(x)
        began = self.clock()
        self.net(x)
        self.seconds += self.clock() - began
        self.rows, self.calls = self.rows + len(x), self.calls + 1
        return scores


@dataclass(frozen=True)
class Measured:
    attack: float  # seconds
    forward: float  # seconds of the same calls on the bare model
    rows: int
    calls: int

    @property
    def ratio(self) -> float:
        return self.attack / self.forward


def measure(case: Case, policy: str, size: Size, seed: int, clock: Clock) -> Measured:
    torch.manual_seed(seed)
    net = case.make().eval()
    x = torch.rand(size.samples, *case.shape)
    with torch.inference_mode():
        batch = rlab.Batch(x=x, y=net(x).argmax(1))
    repeated = Repeated(net, clock)
    victim = rlab.TorchVictim(repeated, outputs="logits")
    patch = [length // 2 for length in batch.size] if policy == HALVES else None
    # The palette of images suits every rank and makes the three comparable.
    shared = {"palette": PALETTES["image"], "chunk": size.samples, "seed": seed, "until": "budget"}
    attack = make_attack(batch, patch=patch, budget=size.budget, policy=policy, **shared)
    began = clock()
    result = run_attack(attack, victim, batch)
    spent = clock() - began - repeated.seconds
    assert repeated.rows == int(result.queries.sum())
    return Measured(spent, repeated.seconds, repeated.rows, repeated.calls)


def rows(case: Case, size: Size, clock: Clock) -> Iterator[tuple[str, Measured]]:
    """The median of the repeats of each policy."""
    for policy in size.policies:
        found = [measure(case, policy, size, SEED + i, clock) for i in range(size.repeats)]
        middle = sorted(found, key=lambda one: one.ratio)[size.repeats // 2]
        print(f"{case.name} | {policy} | {middle.ratio:.3f}", flush=True)
        yield policy, middle


def keyed(case: Case, found: dict[str, Measured]) -> Figures:
    own = {f"own_share_{policy}_rank{case.rank}": one.ratio - 1 for policy, one in found.items()}
    return own | {f"overhead_rank{case.rank}": median(one.ratio for one in found.values())}


def clock_of(one_thread: bool) -> Clock:
    if one_thread:
        torch.set_num_threads(1)
    return process_time if one_thread else perf_counter


def make(case: Case, one_thread: bool, device: str) -> Raw:
    found = rows(case, FULL, clock_of(one_thread))
    timing = "processor time of one thread" if one_thread else f"wall time, {torch.get_num_threads()} threads"
    return Raw({policy: vars(one) for policy, one in found}, {"timing": timing})


def pieces(options: Options) -> Iterator[Piece]:
    for case in CASES:
        settings = {"rank": case.rank, "one_thread": options.one_thread, "budget": FULL.budget}
        yield Piece(f"rank{case.rank}", f"rank{case.rank}", settings, partial(make, case, options.one_thread))


def kept(store: Store) -> Iterator[tuple[Case, dict[str, Measured], str]]:
    for case in CASES:
        if f"rank{case.rank}" in store:
            raw = store.read(f"rank{case.rank}")
            yield case, {policy: Measured(**one) for policy, one in raw.numbers.items()}, raw.facts["timing"]


def sections(store: Store) -> Iterator[str]:
    lines, timings = [], dict[str, None]()
    for case, found, timing in kept(store):
        timings[timing] = None
        for policy, one in found.items():
            times = (f"{one.attack:.2f}", f"{one.forward:.2f}", f"{one.ratio:.3f}")
            lines.append((case.name, policy, f"{one.rows:.0f}", f"{one.calls:.0f}", *times))
    if lines:
        body = table("model and input | policy | rows | calls | attack, s | forward, s | ratio", lines)
        yield section("Three ranks", body, f"Times are {' and '.join(timings)}.")


def figures(store: Store) -> Figures:
    return {name: value for case, found, _ in kept(store) for name, value in keyed(case, found).items()}


def quick(options: Options) -> Figures:
    clock = clock_of(options.one_thread)
    return {name: value for case in CASES for name, value in keyed(case, dict(rows(case, QUICK, clock))).items()}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--one-thread", action="store_true", help="use one thread and time it by its processor time")


RANKS, TITLE = tuple(f"rank{case.rank}" for case in CASES), "Overhead of an attack"
CLAIM = Claim("overhead", TITLE, __doc__, RULES, quick, pieces, sections, figures, flags, RANKS)
