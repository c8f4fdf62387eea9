"""Victims of `benchmarks.peers`, surrogates from other models, and the rows: our attacks and those of papers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import rlab
from benchmarks.attacks import NATURAL, SURROGATES, flips
from benchmarks.data import cifar_test, photos, sample_photos, spread_clips
from benchmarks.peers.contender import parse_peer
from benchmarks.raw import Curves
from benchmarks.victims import cifar_victim, clip_victim, photo_victim
from benchmarks.victims.photo_nets import mobilenet_victim, squeezenet_victim
from rlab.comparison import Contender
from rlab.data.batch import KINDS, Batch
from rlab.priors.base import NoPrior
from rlab.priors.copies import moved_copies
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions, make_attack
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

SEEDS = 3
GUIDED, ALONE = 100, 500  # queries on CIFAR-10: with surrogates or a palette, and with scores alone
TARGETED, CLIPS, SHORT, LONG = 50, 50, 20, 1000  # queries of targeted attacks, on clips, and on photos
CLIP_SURROGATES = ("c3d", "tsn", "tsm")
# By victim, so that none is a surrogate of its own and one at least is of another family
PHOTO_SURROGATES = {
    "squeezenet": ("lite0", "lite1"),
    "mobilenet": ("lite0", "squeezenet"),
    "lite1": ("lite0", "squeezenet"),
}


@dataclass(frozen=True)
class Case:
    """A victim, its data, its surrogates and the limits of a run."""

    title: str
    load: Callable[[str], Victim]  # device
    data: Callable[[int], Batch]  # samples
    surrogates: Callable[[str], tuple[TorchVictim, ...]]  # device
    patch: int = 4
    samples: int = 500
    seeds: int = 1
    part: int = 0  # samples of a piece, if a row runs in several

    @property
    def parts(self) -> int:
        return -(-self.samples // self.part) if self.part else 1


@cache
def cifar_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(cifar_victim(name, device) for name in SURROGATES)


@cache
def photo_net(name: str, device: str) -> TorchVictim:
    """'lite0' or 'squeezenet'."""
    return squeezenet_victim(device) if name == "squeezenet" else photo_victim(device, int(name.removeprefix("lite")))


@cache
def clip_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(clip_victim(name, device) for name in CLIP_SURROGATES)


def _cifar(name: str, title: str, seeds: int = 1) -> Case:
    return Case(title, lambda device: cifar_victim(name, device), cifar_test, cifar_surrogates, seeds=seeds)


def _photos(name: str, title: str, data: Callable[[int], Batch] = photos, samples: int = 120) -> Case:
    def load(device: str) -> Victim:
        return mobilenet_victim() if name == "mobilenet" else photo_net(name, device)

    def surrogates(device: str) -> tuple[TorchVictim, ...]:
        return tuple(photo_net(each, device) for each in PHOTO_SURROGATES[name])

    return Case(title, load, data, surrogates, patch=14, samples=samples, part=40)


CASES = {
    "vgg": _cifar("vgg", "VGG", SEEDS),
    "wide_resnet": _cifar("wide_resnet", "WRN"),
    "vit": _cifar("vit", "vision transformer"),
    "cnn_a_mix": _cifar("cnn_a_mix", "robust CNN"),
    "lite1": _photos("lite1", "EfficientNet-Lite1 on photos"),
    "squeezenet": _photos("squeezenet", "SqueezeNet 1.1 on photos"),
    "mobilenet": _photos("mobilenet", "MobileNet-V1 in eight bits on photos"),
    "lite1_sample": _photos("lite1", "EfficientNet-Lite1 on sample photos", sample_photos, 200),
    "squeezenet_sample": _photos("squeezenet", "SqueezeNet 1.1 on sample photos", sample_photos, 200),
    "slowfast": Case(
        "SlowFast on clips", lambda device: clip_victim("slowfast", device), spread_clips, clip_surrogates,
        patch=8, samples=48, part=16,
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
        made.append(
            TorchVictim(
                Averaged(net.model), mean=net.reading.mean, std=net.reading.std, outputs="logits", device=device
            )
        )
    return tuple(made)


OURS, OURS_ALONE, OURS_INSIDE = "pixels + surrogates", "pixels", "palette + surrogates"
COPIES, SMALL = " of 10 copies", " 8x8"
Run = Callable[[str, Batch, int, int, str], Curves]  # victim's name, samples, budget, seed, device


@dataclass(frozen=True)
class Row:
    """An attack of a table: how it runs, and what it needs."""

    name: str
    run: Run
    needs: str
    budget: int = GUIDED
    samples: int = 500
    seeds: int = SEEDS

    def settings(self, victim: str, seed: int, part: int = 0) -> dict[str, Any]:
        case = CASES[victim]
        samples = min(self.samples, case.samples)
        settings = {"victim": victim, "attack": self.name, "samples": samples, "budget": self.budget, "seed": seed}
        return settings | ({"part": part, "size": case.part} if case.part else {})

    def curves(self, victim: str, seed: int, samples: int, device: str) -> Curves:
        """Attack the first samples."""
        case = CASES[victim]
        return self.of(victim, seed, case.data(case.samples)[: min(samples, self.samples)], device)

    def part(self, victim: str, seed: int, part: int, device: str) -> Curves:
        """Attack one part of the samples."""
        case = CASES[victim]
        if not case.part:
            return self.curves(victim, seed, case.samples, device)
        return self.of(victim, seed, case.data(case.samples)[part * case.part : (part + 1) * case.part], device)

    def of(self, victim: str, seed: int, batch: Batch, device: str) -> Curves:
        """Attack these samples."""
        return self.run(victim, batch, self.budget, seed, device)

    def file(self, victim: str, seed: int, part: int = 0) -> str:
        behind = f"-p{part}" if CASES[victim].part else ""
        return f"{victim}-{self.name.replace(' ', '')}-s{seed}{behind}"


def ours(
    palette: str | Sequence[str], guided: bool, policy: str = "belief", goal: str = "untargeted", patch: int = 0
) -> Run:
    """Our attack as any user calls it, until the budget is spent; without `patch`, the case says which. Free pixels have no
    policy: here 'auto' is their search, and 'belief' their search without the shipped prior."""

    def run(name: str, batch: Batch, budget: int, seed: int, device: str) -> Curves:
        case = CASES[name]
        victim = case.load(device)
        options: dict[str, Any] = {"surrogate": case.surrogates(device)} if guided else {}
        if palette != "pixels":
            options["patch"] = patch or case.patch
        if victim.device.type != "cpu":
            options["chunk"] = len(batch)
        options |= {"palette": palette, "goal": goal, "until": "budget", "seed": seed}
        options["budget"] = budget + 2  # the clean prediction and the verification of the flip are not counted
        if palette != "pixels" or policy == "auto":
            return flips(rlab.attack(victim, batch, policy=policy, **options), uncounted=1)
        attack = make_attack(batch, **options)
        attack = replace(attack, policy=replace(attack.policy, opening=NoPrior()))
        return flips(run_attack(attack, victim, batch), uncounted=1)

    return run


def contender(spec: str, models: Sequence[TorchVictim], patch: int = 4) -> Contender:
    natural = {"palette": NATURAL, "patch": patch, "surrogate": models or None, "distance": "l2"}
    return parse_peer(spec, check(AttackOptions, natural), reduce=True)


def peer(spec: str, copies: bool = False, patch: int = 0) -> Row:
    """`copies`: average the surrogates' gradients over ten copies of the input, as ours does over some of them."""

    def run(name: str, batch: Batch, budget: int, seed: int, device: str) -> Curves:
        case = CASES[name]
        models = averaged(name, device) if copies else case.surrogates(device)
        # As for ours, the clean prediction and the verification of the flip are not counted.
        outcome = contender(spec, models, patch or case.patch)(case.load(device), batch, budget + 2, seed)
        held = zip(outcome.improvements, outcome.attacked.tolist(), outcome.succeeded.tolist(), strict=True)
        return tuple(
            tuple((q - 1, far) for q, far in flips) if won else () for flips, attacked, won in held if attacked
        )

    seeds = 1 if spec.startswith(("ensemble", "bases", "pbo")) or copies else SEEDS
    needs = ", ".join(contender(spec, ()).needs)
    return Row(f"{spec}{COPIES if copies else ''}{SMALL if patch else ''}", run, needs, seeds=seeds)


def within(budget: int, *rows: Row) -> tuple[Row, ...]:
    """Rows of one table, which all have the same budget."""
    return tuple(replace(row, budget=budget) for row in rows)


PIXELS = Row(OURS, ours("pixels", True, "auto"), "scores, surrogates' gradients, free pixels", seeds=1)
PIXELS_ALONE = Row(OURS_ALONE, ours("pixels", False), "scores, free pixels", seeds=1)
PRIOR = "scores, a trained prior, free pixels"
PIXELS_TRAINED = Row(f"{OURS_ALONE} + trained prior", ours("pixels", False, "auto"), PRIOR, seeds=1)
PALETTE = Row(OURS_INSIDE, ours(NATURAL, True), "scores, surrogates' gradients, a palette")
AUTO = Row("auto", ours(NATURAL, False, "auto"), "scores, a trained prior, a palette")
BELIEF = Row("belief", ours(NATURAL, False), "scores, a palette")
TOWARDS = "targeted:0"  # without images of that class
FREE_CIFAR = within(
    GUIDED,
    PIXELS,
    *map(peer, ("pbo", "gfcs", "gfcs@0.33", "simba_ods", "prgf", "ensemble_pgd@1", "ensemble_pgd_min", "bases@1")),
    *(peer(spec, copies=True) for spec in ("gfcs@0.33", "ensemble_pgd_min")),
)
CIFAR_TABLES = {
    "free pixels": FREE_CIFAR,
    "free pixels, scores alone": within(
        ALONE,
        PIXELS_ALONE,
        PIXELS_TRAINED,
        *map(peer, ("square_min", "square_min@1.5", "simba_dct", "sparse_rs@24", "patch_rs@8")),
    ),
    "natural palette, 4x4 patches": within(
        GUIDED,
        PALETTE,
        AUTO,
        BELIEF,
        *map(peer, ("gfcs+palette@2", "simba_ods+palette", "ensemble_pgd+palette", "ensemble_pgd_min+palette")),
        peer("bases+palette"),
        peer("gfcs+palette@2", copies=True),
    ),
    "natural palette, targeted at airplane": tuple(
        Row(f"{policy} targeted", ours(NATURAL, False, policy, TOWARDS), needs, TARGETED, 100, 1)
        for policy, needs in (("auto", AUTO.needs), ("square", BELIEF.needs))
    ),
}
BRIEF_TABLES = {  # the strongest of them, for other victims than the VGG
    "free pixels": within(GUIDED, PIXELS, *map(peer, ("gfcs", "gfcs@0.33", "simba_ods", "ensemble_pgd_min"))),
    "free pixels, scores alone": within(ALONE, PIXELS_ALONE, *map(peer, ("square_min", "square_min@1.5", "simba_dct"))),
    "natural palette, 4x4 patches": within(
        GUIDED, PALETTE, AUTO, BELIEF, *map(peer, ("gfcs+palette@2", "ensemble_pgd+palette"))
    ),
}
FREE_PHOTOS = within(
    SHORT,
    PIXELS,
    PIXELS_ALONE,
    *map(peer, ("gfcs@2", "gfcs@1.1", "ensemble_pgd_min@3.5", "simba_ods@2", "pbo@7", "ensemble_pgd@7", "bases_linf")),
    *map(peer, ("square_min@20", "square_min@5", "simba_dct@1", "sparse_rs@500", "patch_rs@56")),
)
LONG_PHOTOS = tuple(
    Row(f"belief {side}x{side} to the end", ours(NATURAL, False, patch=side), BELIEF.needs, LONG, seeds=1)
    for side in (14, 8)
)
PHOTO_TABLES = {
    "free pixels": FREE_PHOTOS,
    "natural palette, 14x14 patches": within(
        SHORT,
        PALETTE,
        BELIEF,
        *map(peer, ("gfcs+palette@7", "ensemble_pgd+palette@28", "ensemble_pgd_min+palette@28")),
    ),
    "natural palette, 8x8 patches": within(
        SHORT,
        replace(PALETTE, name=f"{OURS_INSIDE}{SMALL}", run=ours(NATURAL, True, patch=8)),
        replace(BELIEF, name=f"belief{SMALL}", run=ours(NATURAL, False, patch=8)),
        peer("ensemble_pgd_min+palette@28", patch=8),
    ),
    "natural palette, to the end": LONG_PHOTOS,
}
SAMPLE_TABLES = {
    "free pixels": within(SHORT, PIXELS, *map(peer, ("gfcs@2", "ensemble_pgd_min@3.5"))),
    "natural palette, to the end": LONG_PHOTOS,
}
FREE_CLIPS = within(
    CLIPS,
    PIXELS,
    *map(peer, ("gfcs@2", "ensemble_pgd_min@5", "vbad@5", "vbad@2", "geo_trap@5", "geo_trap@10", "ensemble_pgd@10")),
    *map(peer, ("simba_ods@2", "pbo@10")),
    peer("ensemble_pgd_min@5", copies=True),
)
TABLES = {
    "vgg": CIFAR_TABLES,
    **dict.fromkeys(("wide_resnet", "vit", "cnn_a_mix"), BRIEF_TABLES),
    **dict.fromkeys(PHOTO_SURROGATES, PHOTO_TABLES),
    **dict.fromkeys(("lite1_sample", "squeezenet_sample"), SAMPLE_TABLES),
    "slowfast": {"free pixels": FREE_CLIPS},
}
