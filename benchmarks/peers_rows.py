"""Rows of `benchmarks.peers`: attacks of ours and of papers, and which tables they stand in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rlab
from benchmarks import common
from benchmarks.anytime import NATURAL
from benchmarks.peers_victims import CASES, averaged
from rlab.comparison import CompareOptions, Contender
from rlab.core.trace import Improvements
from rlab.data.batch import Batch
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

SAMPLES, SEEDS, MOST = 500, 3, 500
OURS, OURS_ALONE, OURS_INSIDE = "pixels + surrogates", "pixels", "palette + surrogates"
COPIES = " of 10 copies"
Run = Callable[[TorchVictim, Batch, int, int, str], tuple[Improvements, ...]]  # budget, seed, victim's name


@dataclass(frozen=True)
class Row:
    """An attack of a table: how it is run, and what it needs."""

    name: str
    run: Run
    needs: str
    budget: int = MOST
    samples: int = SAMPLES
    seeds: int = SEEDS

    def fresh(self, victim: str, seed: int, samples: int, device: str) -> Curves:
        """Run now."""
        case = CASES[victim]
        batch = case.data(min(samples, self.samples, case.samples))
        return list(self.run(case.load(device), batch, min(self.budget, case.most), seed, victim))

    def kept(self, victim: str, seed: int, samples: int, device: str, fresh: bool) -> Curves:
        """As kept, or run and kept now."""

        def make() -> dict[str, Any]:
            curves = self.fresh(victim, seed, samples, device)
            return {"improvements": [[[q, round(far, 4)] for q, far in flips] for flips in curves]}

        count = min(samples, self.samples, CASES[victim].samples)
        return _curves(common.kept_values(f"{self.raw(victim, seed)}{count}", fresh, make))

    def kept_longest(self, victim: str, seed: int) -> Curves | None:
        """Of the most samples that are kept."""
        name = self.raw(victim, seed)
        counts = [int(path.stem.removeprefix(name)) for path in common.RAW.glob(f"{name}*.json")]
        return _curves(json.loads((common.RAW / f"{name}{max(counts)}.json").read_text())) if counts else None

    def raw(self, victim: str, seed: int) -> str:
        """What its files are called, before the number of samples."""
        return f"peers-{victim}-{self.name.replace(' ', '')}-s{seed}-n"


Curves = list[Improvements]  # of the samples that the victim has right


def _curves(values: Mapping[str, Any]) -> Curves:
    return [tuple((int(q), float(far)) for q, far in flips) for flips in values["improvements"]]


def ours(palette: str | Sequence[str], guided: bool, policy: str = "belief", goal: str = "untargeted") -> Run:
    """An attack of ours as any user calls it, until the budget is spent."""

    def run(victim: TorchVictim, batch: Batch, budget: int, seed: int, name: str) -> tuple[Improvements, ...]:
        options: dict[str, Any] = {"surrogate": CASES[name].surrogates(str(victim.device))} if guided else {}
        if palette != "pixels":
            options["patch"] = CASES[name].patch
        if victim.device.type != "cpu":
            options["chunk"] = len(batch)
        # Two more rows than the search may ask: the clean prediction and the verification of the flip.
        result = rlab.attack(
            victim,
            batch,
            palette=palette,
            policy=policy,
            goal=goal,
            budget=budget + 2,
            until="budget",
            seed=seed,
            **options,
        )
        pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
        return tuple(tuple((q - 1, far) for q, far in flips) for flips, attacked in pairs if attacked)

    return run


def contender(spec: str, models: Sequence[TorchVictim], patch: int = 4) -> Contender:
    values = {"model": "none", "data": "none", "policies": (), "attacks": (spec,), "reduce": True}
    natural = {"palette": NATURAL, "patch": patch, "surrogate": models or None}
    return check(CompareOptions, values | natural).contenders()[spec]


def peer(spec: str, copies: bool = False) -> Row:
    """`copies`: its surrogates' gradients are averaged over ten copies of the input, as ours are over some of them."""

    def run(victim: TorchVictim, batch: Batch, budget: int, seed: int, name: str) -> tuple[Improvements, ...]:
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
TOWARDS = "targeted:0"  # images of that class are left out
TARGETED = tuple(
    Row(f"{policy} targeted", ours(NATURAL, False, policy, TOWARDS), needs, 50, 100, 1)
    for policy, needs in (("auto", "scores, a trained prior, a palette"), ("square", "scores, a palette"))
)
CIFAR_TABLES = {
    "free pixels": FREE_CIFAR,
    "natural palette, 4x4 patches": INSIDE_CIFAR,
    "natural palette, to be read as an airplane": TARGETED,
}
OTHER_TABLES = {
    "lite1": {"free pixels": FREE_PHOTOS, "natural palette, 14x14 patches": INSIDE_PHOTOS},
    "slowfast": {"free pixels": FREE_CLIPS},
}
