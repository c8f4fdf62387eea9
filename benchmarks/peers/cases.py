"""Victims of `benchmarks.peers`, the data they are attacked on, and surrogates from other models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from benchmarks.attacks import SURROGATES
from benchmarks.data import cifar_test, photos_and_pets, spread_clips
from benchmarks.victims import cifar_victim, clip_victim, photo_victim
from rlab.data.batch import KINDS, Batch
from rlab.priors.copies import moved_copies
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
