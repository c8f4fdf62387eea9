"""A long run that learns from its own answers, against the same run that does not: what the last third of its samples gain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.anytime.cases import Load, demo
from benchmarks.attacks import NATURAL, flips, within
from benchmarks.data import cifar_test
from benchmarks.harness import Piece
from benchmarks.raw import RESULTS, Curves, Store
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
BLOCKS = 8  # of samples, in the picture
PICTURES = RESULTS.parent.parent / "docs" / "images"


@dataclass(frozen=True)
class StagedCase:
    """A victim with enough samples to learn from; the sizes were fixed before any result was seen."""

    name: str
    load: Load
    samples: int
    stages: tuple[int, ...]
    palette: tuple[str, ...] | None = None
    patch: int | None = None
    chunk: int | None = None

    def settings(self, learns: bool) -> dict[str, Any]:
        stages = {"learn": f"stages:{','.join(map(str, self.stages))}"} if learns else {}
        shared = {"palette": self.palette, "patch": self.patch, "budget": QUERIES + 1, "until": "budget", "seed": SEED}
        return shared | stages | ({} if self.chunk is None else {"chunk": self.chunk})

    def file(self, learns: bool) -> str:
        return f"{self.name}-{GROUP}-{'on' if learns else 'off'}"


def later_images(samples: int, device: str) -> tuple[Victim, Batch]:
    """CIFAR-10 test images from 2000 on, which nothing was chosen on."""
    return cifar_victim("vgg", device), cifar_test(2000 + samples)[2000:]


QUICK = StagedCase("digits", demo("digits"), 500, (64, 192))
FULL = StagedCase("vgg", later_images, 3000, (256, 1024), NATURAL, 4, chunk=256)
CASES = (QUICK, FULL)


def measure(case: StagedCase, learns: bool, device: str) -> Curves:
    victim, batch = case.load(case.samples, device)
    return flips(run_attack(AttackOptions(**case.settings(learns)), victim, batch))


def pieces() -> Iterator[Piece]:
    for case in CASES:
        for learns in (False, True):
            settings = {"case": case.name, "samples": case.samples, **case.settings(learns)}
            yield Piece.of_curves(case.file(learns), GROUP, settings, partial(measure, case, learns))


def gain(on: Curves, off: Curves, queries: int = QUERIES) -> Estimate:
    """The median distance of the last third of the attacked samples, over that without learning."""
    first = len(on) - len(on) // 3
    return ratio_over_seeds(within([on[first:]], queries), within([off[first:]], queries), "median")


def quick(device: str) -> dict[str, float]:
    on, off = (measure(QUICK, learns, device) for learns in (True, False))
    print(_section(QUICK, on, off), flush=True)
    return {"stage_gain": gain(on, off).value}


def kept(store: Store, case: StagedCase) -> tuple[Curves, Curves] | None:
    """The curves of a case with and without learning, if both have a raw file."""
    held = store.curves({learns: case.file(learns == "on") for learns in ("on", "off")})
    return (held["on"], held["off"]) if len(held) == 2 else None


def figures(store: Store) -> dict[str, float]:
    """The gain on the CIFAR-10 victim where it was measured, otherwise on the digits."""
    held = kept(store, FULL) or kept(store, QUICK)
    return {} if held is None else {"stage_gain": gain(*held).value}


def sections(store: Store) -> Iterator[str]:
    for case in CASES:
        if (held := kept(store, case)) is not None:
            draw(case, *held, PICTURES / f"stages-{case.name}.png")
            yield _section(case, *held)


def draw(case: StagedCase, on: Curves, off: Curves, path: Path) -> None:
    """The median distance of successive samples, with and without learning."""
    from matplotlib.figure import Figure

    figure = Figure((6.4, 2.6), layout="constrained")
    axes = figure.add_subplot()
    scale = case.samples / len(on)
    for curves, name, colour in ((off, "without learning", "tab:gray"), (on, "learning from the answers", "tab:blue")):
        blocks = np.array_split(within([curves], QUERIES)[0], BLOCKS)
        ends = np.cumsum([len(block) for block in blocks]) * scale
        medians = [float(np.median(block)) for block in blocks]
        axes.step([0, *ends], [medians[0], *medians], color=colour, label=name)
    for edge in case.stages:
        axes.axvline(edge, color="tab:blue", linestyle=":", linewidth=1)
    axes.set(
        xlabel="sample", ylabel=f"median distance\nwithin {QUERIES} queries", xlim=(0, case.samples), ylim=(0, None)
    )
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _section(case: StagedCase, on: Curves, off: Curves) -> str:
    rows = [("last third, learning over not learning", *(interval(gain(on, off, q)) for q in SHOWN))]
    edges = ", ".join(f"{edge:,}" for edge in case.stages)
    note = (
        f"{case.name}: {case.samples:,} samples, {len(on):,} of them attacked with {QUERIES} queries each. Students are distilled "
        f"from the clean answers first, and again after {edges} samples (dotted lines). Below 1 is better.\n\n"
        f"![Median distance over the samples of the run, with and without learning](../../docs/images/stages-{case.name}.png)"
    )
    return section_of(
        f"Learning from the run's own answers: {case.name}", table(("within", *map(str, SHOWN)), rows), note
    )
