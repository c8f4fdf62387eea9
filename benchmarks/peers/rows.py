"""Rows of `benchmarks.peers`: our attacks and those of papers, and the tables they are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import rlab
from benchmarks.attacks import NATURAL, flips
from benchmarks.peers.cases import CASES, averaged
from benchmarks.raw import Curves
from rlab.comparison import CompareOptions, Contender
from rlab.data.batch import Batch
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

SAMPLES, SEEDS, MOST = 500, 3, 500
OURS, OURS_ALONE, OURS_INSIDE = "pixels + surrogates", "pixels", "palette + surrogates"
COPIES = " of 10 copies"
Run = Callable[[TorchVictim, Batch, int, int, str], Curves]  # budget, seed, victim's name


@dataclass(frozen=True)
class Row:
    """An attack of a table: how it runs, and what it needs."""

    name: str
    run: Run
    needs: str
    budget: int = MOST
    samples: int = SAMPLES
    seeds: int = SEEDS

    def settings(self, victim: str, seed: int) -> dict[str, Any]:
        case = CASES[victim]
        samples, budget = min(self.samples, case.samples), min(self.budget, case.most)
        return {"victim": victim, "attack": self.name, "samples": samples, "budget": budget, "seed": seed}

    def curves(self, victim: str, seed: int, samples: int, device: str) -> Curves:
        case = CASES[victim]
        batch = case.data(min(samples, self.samples, case.samples))
        return self.run(case.load(device), batch, min(self.budget, case.most), seed, victim)

    def file(self, victim: str, seed: int) -> str:
        return f"{victim}-{self.name.replace(' ', '')}-s{seed}"


def ours(palette: str | Sequence[str], guided: bool, policy: str = "belief", goal: str = "untargeted") -> Run:
    """Our attack as any user calls it, until the budget is spent."""

    def run(victim: TorchVictim, batch: Batch, budget: int, seed: int, name: str) -> Curves:
        options: dict[str, Any] = {"surrogate": CASES[name].surrogates(str(victim.device))} if guided else {}
        if palette != "pixels":
            options["patch"] = CASES[name].patch
        if victim.device.type != "cpu":
            options["chunk"] = len(batch)
        options |= {"palette": palette, "policy": policy, "goal": goal, "until": "budget", "seed": seed}
        # The clean prediction and the verification of the flip are not counted.
        return flips(rlab.attack(victim, batch, budget=budget + 2, **options), uncounted=1)

    return run


def contender(spec: str, models: Sequence[TorchVictim], patch: int = 4) -> Contender:
    values = {"model": "none", "data": "none", "policies": (), "attacks": (spec,), "reduce": True}
    natural = {"palette": NATURAL, "patch": patch, "surrogate": models or None}
    return check(CompareOptions, values | natural).contenders()[spec]


def peer(spec: str, copies: bool = False) -> Row:
    """`copies`: average the surrogates' gradients over ten copies of the input, as ours does over some of them."""

    def run(victim: TorchVictim, batch: Batch, budget: int, seed: int, name: str) -> Curves:
        case, device = CASES[name], str(victim.device)
        models = averaged(name, device) if copies else case.surrogates(device)
        outcome = contender(spec, models, case.patch)(victim, batch, budget, seed)
        held = zip(outcome.improvements, outcome.attacked.tolist(), outcome.succeeded.tolist(), strict=True)
        return tuple(flips if won else () for flips, attacked, won in held if attacked)

    few: dict[str, int] = {}
    if spec.startswith("bases"):
        few["budget"] = 50
    if spec == "hopskipjump":
        few["samples"] = 100
    if spec.startswith(("ensemble", "bases", "hop")) or copies:
        few["seeds"] = 1
    needs = ", ".join(contender(spec, ()).needs)
    return Row(f"{spec}{COPIES}" if copies else spec, run, needs, **few)


FREE = (
    Row(OURS, ours("pixels", True, "auto"), "scores, surrogates' gradients, free pixels", budget=100, seeds=1),
    Row(OURS_ALONE, ours("pixels", False, "auto"), "scores, free pixels", seeds=1),
)
FREE_CIFAR = (
    *FREE,
    *map(peer, ("gfcs", "gfcs@0.33", "simba_ods", "prgf", "ensemble_pgd@1", "ensemble_pgd_min", "bases@1")),
    *(peer(spec, copies=True) for spec in ("gfcs", "gfcs@0.33", "ensemble_pgd_min")),
    *map(peer, ("simba_dct", "square_min", "square_min@1.5", "hopskipjump")),
)
FREE_PHOTOS = (
    *FREE,
    *map(peer, ("gfcs@2", "gfcs@1.1", "simba_ods@2", "ensemble_pgd@7", "ensemble_pgd_min@3.5")),
    *(peer(spec, copies=True) for spec in ("gfcs@1.1", "ensemble_pgd_min@3.5")),
    *map(peer, ("simba_dct@1", "square_min@20", "square_min@5")),
)
FREE_CLIPS = (
    FREE[0],
    *map(peer, ("gfcs@2", "simba_ods@2", "ensemble_pgd@10", "ensemble_pgd_min@5")),
    peer("ensemble_pgd_min@5", copies=True),
)
INSIDE = (
    Row(OURS_INSIDE, ours(NATURAL, True), "scores, surrogates' gradients, a palette", budget=100),
    Row("auto", ours(NATURAL, False, "auto"), "scores, a trained prior, a palette", budget=100),
    Row("belief", ours(NATURAL, False), "scores, a palette", budget=100),
)
INSIDE_CIFAR = (
    *INSIDE,
    *map(peer, ("gfcs+palette", "gfcs+palette@2", "simba_ods+palette", "ensemble_pgd+palette")),
    *map(peer, ("ensemble_pgd_min+palette", "bases+palette")),
    *(peer(spec, copies=True) for spec in ("gfcs+palette@2", "ensemble_pgd+palette", "ensemble_pgd_min+palette")),
)
INSIDE_PHOTOS = (
    INSIDE[0],
    INSIDE[2],
    *map(peer, ("gfcs+palette@7", "ensemble_pgd+palette@28", "ensemble_pgd_min+palette@28")),
    peer("ensemble_pgd_min+palette@28", copies=True),
)
TOWARDS = "targeted:0"  # without images of that class
TARGETED = tuple(
    Row(f"{policy} targeted", ours(NATURAL, False, policy, TOWARDS), needs, 50, 100, 1)
    for policy, needs in (("auto", "scores, a trained prior, a palette"), ("square", "scores, a palette"))
)
CIFAR_TABLES = {
    "free pixels": FREE_CIFAR,
    "natural palette, 4x4 patches": INSIDE_CIFAR,
    "natural palette, targeted at airplane": TARGETED,
}
OTHER_TABLES = {
    "lite1": {"free pixels": FREE_PHOTOS, "natural palette, 14x14 patches": INSIDE_PHOTOS},
    "slowfast": {"free pixels": FREE_CLIPS},
}
