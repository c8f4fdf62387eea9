"""Victims of `benchmarks.peers`, surrogates from other models, and the rows: our attacks and those of papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import rlab
from benchmarks.attacks import NATURAL, SURROGATES, flips
from benchmarks.data import cifar_test, photos_and_pets, spread_clips
from benchmarks.raw import Curves
from benchmarks.victims import cifar_victim, clip_victim, photo_victim
from rlab.comparison import CompareOptions, Contender
from rlab.data.batch import KINDS, Batch
from rlab.priors.copies import moved_copies
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

CLIP_SURROGATES, PHOTO_SURROGATES = ("c3d", "tsn", "tsm"), (0, 2)


@dataclass(frozen=True)
class Case:
    """A victim, its data, its surrogates and the limits of a run."""

    title: str
    load: Callable[[str], TorchVictim]  # device
    data: Callable[[int], Batch]  # samples
    surrogates: Callable[[str], tuple[TorchVictim, ...]]  # device
    patch: int = 4
    samples: int = 500
    most: int = 500  # queries
    near: float = 1.0  # the L2 of `ensemble_pgd`: each value changes as much as at 1.0 on a CIFAR-10 image


@cache
def cifar_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(cifar_victim(name, device) for name in SURROGATES)


@cache
def photo_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(photo_victim(device, number) for number in PHOTO_SURROGATES)


@cache
def clip_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(clip_victim(name, device) for name in CLIP_SURROGATES)


def _cifar(name: str, title: str) -> Case:
    return Case(title, lambda device: cifar_victim(name, device), cifar_test, cifar_surrogates)


CASES = {
    "vgg": _cifar("vgg", "VGG"),
    "wide_resnet": _cifar("wide_resnet", "WRN"),
    "vit": _cifar("vit", "vision transformer"),
    "cnn_a_mix": _cifar("cnn_a_mix", "robust CNN"),
    "lite1": Case(
        "EfficientNet-Lite1 on photos", lambda device: photo_victim(device, 1), photos_and_pets, photo_surrogates,
        patch=14, samples=120, most=200, near=7.0,
    ),
    "slowfast": Case(
        "SlowFast on clips", lambda device: clip_victim("slowfast", device), spread_clips, clip_surrogates,
        patch=8, samples=48, most=50, near=10.0,
    ),
}  # fmt: skip


class Averaged(nn.Module):
    """The mean output over all moved copies of the input, so that any attack has gradients averaged over them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        every = torch.ones(len(x), dtype=torch.bool, device=x.device)
        return torch.stack([self.net(copy.make(x, every)) for copy in moved_copies(KINDS[x.dim() - 3])]).mean(0)


@cache
def averaged(victim: str, device: str) -> tuple[TorchVictim, ...]:
    """The surrogates of a case, each averaged over copies."""
    made = []
    for net in CASES[victim].surrogates(device):
        mean, std = (None, None) if net.normalise is None else (net.normalise.mean, net.normalise.std)
        made.append(TorchVictim(Averaged(net.model), mean=mean, std=std, outputs="logits", device=device))
    return tuple(made)


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
