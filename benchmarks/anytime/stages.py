"""A long run that learns from its own answers, against the same run that does not: what the last third of its samples gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.anytime.cases import Load, demo
from benchmarks.attacks import NATURAL, flips, within
from benchmarks.data import cifar_test
from benchmarks.harness import Piece
from benchmarks.raw import Curves, Store
from benchmarks.tables import interval, table
from benchmarks.tables import section as section_of
from benchmarks.victims import cifar_victim
from rlab.data.batch import Batch
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.stats import Estimate, ratio_over_seeds
from rlab.victims.base import Victim

GROUP, SEED, QUERIES = "stages", 0, 20
SHOWN = (3, 5, 8, 12, 20)


@dataclass(frozen=True)
class StagedCase:
    """A victim with enough samples to learn from; the sizes were fixed before any result was seen."""

    name: str
    load: Load
    samples: int
    stages: tuple[int, ...]
    palette: tuple[str, ...] | None = None
    patch: int | None = None

    def settings(self, learns: bool) -> dict[str, Any]:
        stages = {"stages": self.stages} if learns else {"learn": "off"}
        shared = {"palette": self.palette, "patch": self.patch, "budget": QUERIES + 1, "until": "budget", "seed": SEED}
        return shared | stages

    def file(self, learns: bool) -> str:
        return f"{self.name}-{GROUP}-{'on' if learns else 'off'}"


def later_images(samples: int, device: str) -> tuple[Victim, Batch]:
    """CIFAR-10 test images from 2000 on, which nothing was chosen on."""
    return cifar_victim("vgg", device), cifar_test(2000 + samples)[2000:]


QUICK = StagedCase("digits", demo("digits"), 500, (64, 192))
FULL = StagedCase("vgg", later_images, 3000, (256, 1024), NATURAL, 4)


def measure(case: StagedCase, learns: bool, device: str) -> Curves:
    victim, batch = case.load(case.samples, device)
    return flips(run_attack(AttackOptions(**case.settings(learns)), victim, batch))


def pieces() -> Iterator[Piece]:
    for learns in (False, True):
        settings = {"case": FULL.name, "samples": FULL.samples, **FULL.settings(learns)}
        yield Piece.of_curves(FULL.file(learns), GROUP, settings, partial(measure, FULL, learns))


def gain(on: Curves, off: Curves, queries: int = QUERIES) -> Estimate:
    """The median distance of the last third of the attacked samples, over that without learning."""
    first = len(on) - len(on) // 3
    return ratio_over_seeds(within([on[first:]], queries), within([off[first:]], queries), "median")


def quick(device: str) -> dict[str, float]:
    on, off = (measure(QUICK, learns, device) for learns in (True, False))
    print(_section(QUICK, on, off), flush=True)
    return {"stage_gain": gain(on, off).value}


def kept(store: Store) -> tuple[Curves, Curves] | None:
    """The curves of the full run with and without learning, if both have a raw file."""
    held = store.curves({learns: FULL.file(learns == "on") for learns in ("on", "off")})
    return (held["on"], held["off"]) if len(held) == 2 else None


def figures(store: Store) -> dict[str, float]:
    held = kept(store)
    return {} if held is None else {"stage_gain": gain(*held).value}


def sections(store: Store) -> Iterator[str]:
    if (held := kept(store)) is not None:
        yield _section(FULL, *held)


def _section(case: StagedCase, on: Curves, off: Curves) -> str:
    rows = [("last third, learning over not learning", *(interval(gain(on, off, q)) for q in SHOWN))]
    edges = ", ".join(f"{edge:,}" for edge in case.stages)
    note = (
        f"{case.name}: {case.samples:,} samples, {len(on):,} of them attacked with {QUERIES} queries each. Students are distilled "
        f"from the clean answers first, and again after {edges} samples. Below 1 is better."
    )
    return section_of(
        f"Learning from the run's own answers: {case.name}", table(("within", *map(str, SHOWN)), rows), note
    )
