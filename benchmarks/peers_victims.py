"""Victims of `benchmarks.peers`, the data they are attacked on, and surrogates that they are not among."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

import rlab
from benchmarks import common
from benchmarks.anytime import SURROGATES
from benchmarks.train_clips import TEST
from rlab.data.batch import Batch
from rlab.priors.copies import moved_copies
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo.clips import CLIP_FRAMES, CLIP_SIZE, clip_victim

CLIP_SURROGATES, PHOTO_SURROGATES = ("c3d", "tsn", "tsm"), (0, 2)


@dataclass(frozen=True)
class Case:
    """A victim, by `load(device)`, and as many samples as are asked for, by `data(count)`."""

    title: str
    load: Callable[[str], TorchVictim]
    data: Callable[[int], Batch]
    surrogates: Callable[[str], tuple[TorchVictim, ...]]
    patch: int = 4
    samples: int = 500
    most: int = 500  # queries
    near: float = 1.0  # the L2 that `ensemble_pgd` is given: every value changes as much as at 1.0 of a CIFAR-10 image


@cache
def cifar_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(common.cifar_victim(name, device) for name in SURROGATES)


@cache
def photo_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(common.photo_victim(device, number) for number in PHOTO_SURROGATES)


@cache
def clip_surrogates(device: str) -> tuple[TorchVictim, ...]:
    return tuple(_clip_net(name, device) for name in CLIP_SURROGATES)


def _clip_net(name: str, device: str) -> TorchVictim:
    return clip_victim(common.WEIGHTS / f"{name}.safetensors", device)


def _cifar(name: str, title: str) -> Case:
    return Case(title, lambda device: common.cifar_victim(name, device), common.cifar_test, cifar_surrogates)


def clips(count: int) -> Batch:
    """UCF-101 clips of groups that no network was trained on, spread over the classes."""
    try:
        batch = rlab.load(common.real("ucf6"), groups=TEST, size=CLIP_SIZE, frames=CLIP_FRAMES)
    except common.Absent:
        batch = rlab.load(common.real("ucf6_test.npz"))  # the same as arrays, for a machine that reads no video
    return batch[torch.linspace(0, len(batch) - 1, min(count, len(batch))).long().tolist()]


CASES = {
    "vgg": _cifar("vgg", "VGG"),
    "wide_resnet": _cifar("wide_resnet", "WRN"),
    "vit": _cifar("vit", "vision transformer"),
    "cnn_a_mix": _cifar("cnn_a_mix", "robust CNN"),
    "lite1": Case(
        "EfficientNet-Lite1 on photos",
        lambda device: common.photo_victim(device, 1),
        common.photos_and_pets,
        photo_surrogates,
        14,
        120,
        200,
        7.0,
    ),
    "slowfast": Case(
        "SlowFast on clips", lambda device: _clip_net("slowfast", device), clips, clip_surrogates, 8, 48, 50, 10.0
    ),
}


class Averaged(nn.Module):
    """A network's mean answer to all copies of its input, so that any attack has gradients averaged over them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        every = torch.ones(len(x), dtype=torch.bool, device=x.device)
        answers = [self.net(copy.make(x, every)) for copy in moved_copies(x.dim() - 2)]
        return torch.stack(answers).mean(0)


@cache
def averaged(victim: str, device: str) -> tuple[TorchVictim, ...]:
    """The surrogates of a case, each the mean over copies."""
    made = []
    for net in CASES[victim].surrogates(device):
        mean, std = (None, None) if net.normalise is None else (net.normalise.mean, net.normalise.std)
        made.append(TorchVictim(Averaged(net.model), mean=mean, std=std, outputs="logits", device=device))
    return tuple(made)
