"""Models, palettes and ladders of the transfer benchmark, and how a set is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data import cifar_test
from benchmarks.victims import cifar_victim
from rlab.benchmarking import Benchmark, make_benchmark
from rlab.core.defaults import POLICY
from rlab.victims.torch_module import TorchVictim

MADE_AGAINST, ROBUST = "resnet20", "cnn_a_mix"  # the latter is certified robust
VICTIMS = (MADE_AGAINST, "vgg", "wide_resnet", "mixer", ROBUST)
LADDER = "times:1.5,2"
SEED = 0


@dataclass(frozen=True)
class Case:
    """How one set is made."""

    palette: str = "illuminate@0.2,0.4"
    patch: int = 4
    images: int = 500
    budget: int = 500
    steps: int = 30  # queries for each level of the ladder

    def make(self, against: Sequence[str], folder: Path, ladder: str, device: str) -> Benchmark:
        options = {"palette": self.palette.split(), "patch": self.patch, "policy": POLICY, "budget": self.budget}
        shared = {"ladder": ladder, "seed": SEED, "format": "png", "steps": self.steps}
        return make_benchmark(victims(device, against), cifar_test(self.images), folder, **options, **shared)  # type: ignore[arg-type]


def victims(device: str, names: Sequence[str] = VICTIMS) -> dict[str, TorchVictim]:
    return {name: cifar_victim(name, device) for name in names}


@dataclass(frozen=True)
class Size:
    """Images and queries of each part."""

    images: int = 500
    others: int = 32  # images of the sets made against every model
    rank_budget: int = 60
    steps: int = 30


FULL, QUICK = Size(), Size(others=6, rank_budget=40, steps=20)
SHIFTS = "small shifts"  # what the certificate of cnn_a_mix is about
RANKED = {SHIFTS: Case("channel_shift@0.05", 2), "light": Case()}
