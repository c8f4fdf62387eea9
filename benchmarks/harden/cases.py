"""Nets, data and methods of the hardening benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.beats import balanced, beats, of_records
from benchmarks.data import DATA, TRAIN_GROUPS, Absent, cifar_images, cifar_test, spread_clips, ucf_clips
from benchmarks.harden.rlat import Rlat
from benchmarks.victims import beat_victim, cifar_victim, clip_victim
from benchmarks.victims.cifar_nets import MEAN, STD
from benchmarks.victims.residual import resnet18
from benchmarks.victims.train_cifar import augmented
from benchmarks.victims.train_clips import write_clips
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.hardening.run import Splits
from rlab.hardening.trainable import correct
from rlab.victims.torch_module import TorchVictim

UNCHANGED, OURS = "unchanged", "ours"
METHODS = (UNCHANGED, "ours", "augmix", "augment", "pgd", "fgsm", "trades", "belief")
TITLES = {
    "scratch": "CIFAR-10, ResNet-18 from scratch", "cifar": "CIFAR-10, ResNet-20", "ecg": "MIT-BIH beats, a CNN",
    "clips": "UCF-101 clips, C3D",
}  # fmt: skip
SEEDS = (0, 1, 2)
CHOOSING_PATIENTS = ("111", "213", "228")  # of DS2; the others are reported
TRAINED_CLIPS = 120
CHOOSING_GROUPS = ("g04", "g05")  # of UCF-101; g06 and g07 are reported
# By section and method: its spec and its settings, the best on the data to choose by of nine (cifar), six (ecg) or four (clips)
# that rlab 0.2.0 tried with few epochs.
CHOSEN: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "cifar": {
        "ours": ("ours", {"radius_range": (0.01, 0.08)}),
        "augmix": ("augmix", {"learning_rate": 0.003, "consistency_weight": 12.0}),
        "augment": ("augment", {"learning_rate": 0.002, "distillation_weight": 0.3}),
        "pgd": ("pgd@0.008", {"learning_rate": 0.001}),
        "fgsm": ("fgsm@0.004", {}),
        "trades": ("trades", {"radius_range": (0.02, 0.16), "consistency_weight": 2.0}),
    },
    "ecg": {
        "ours": ("ours", {"radius_range": (0.02, 0.5)}),
        "augmix": ("augmix", {"learning_rate": 0.002, "consistency_weight": 12.0}),
        "augment": ("augment", {"learning_rate": 0.005, "distillation_weight": 0.3}),
        "pgd": ("pgd@0.04", {}),
        "fgsm": ("fgsm_l2@2.0", {}),
        "trades": ("trades", {"radius_range": (0.02, 0.1), "consistency_weight": 2.0}),
    },
    "clips": {
        "ours": ("ours", {"radius_range": (0.005, 0.05), "aimed_share": 0.9}),
        "augmix": ("augmix", {"learning_rate": 0.0003, "consistency_weight": 12.0}),
        "augment": ("augment", {"learning_rate": 0.0003, "distillation_weight": 0.0}),
        "pgd": ("pgd@0.008", {}),
        "fgsm": ("fgsm@0.004", {}),
        "trades": ("trades", {"radius_range": (0.005, 0.05), "consistency_weight": 2.0}),
    },
}
NATURAL = ("gaussian_noise@0.03..0.3", "gaussian_blur@0.5..2.0", "dead_pixel@0.5..1.0", "illuminate@0.05..0.4")


@dataclass(frozen=True)
class Section:
    """A net, its data, and how to harden it; `common` holds the images for common corruptions, if any."""

    victim: TorchVictim
    data: Splits
    config: Mapping[str, Any]
    augment: Callable[[Tensor], Tensor] | None = None
    common: Batch | None = None
    attacked: int = 300
    scratch: bool = False  # whether each method trains from random weights, so that none has unchanged ones


def cifar(device: str, train: Path = DATA / "cifar10_train.npz", net: str = "resnet20") -> Section:
    """ResNet-20 on CIFAR-10; test images 2000-3999 choose, images 0-1999 are reported."""
    if not train.exists():
        raise Absent(f"{train.name} does not exist: name the CIFAR-10 training images with --cifar FILE.npz")
    batch = cifar_images(train)
    held_out = cifar_test(4000)
    config = {
        "palettes": [NATURAL], "patches": [2, 2, 4], "radius_range": (0.02, 0.16), "epochs": 12, "training_batch": 256,
        "learning_rate": 3e-3, "ema_decay": 0.998, "distillation_weight": 0.3, "aimed_share": 0.5,
    }  # fmt: skip
    victim = cifar_victim(net, device)
    victim.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Section(victim, Splits(batch, held_out[:2000], held_out[2000:]), config, augmented, held_out[:1000])


# Each method by its published settings, ours by those that were best for ResNet-20; the epochs give all the same time.
FROM_SCRATCH: dict[str, dict[str, Any]] = {
    "standard": {"epochs": 60},
    "augmix": {"epochs": 32},
    "ours": {
        "epochs": 30, "adversary": "augmix+gradient", "views": 2, "consistency_weight": 8.0, "aimed_share": 1.0,
        "radius_range": (0.01, 0.08),
    },
    "rlat": {"epochs": 30, "adversary": "augmix", "views": 1, "step": Rlat()},
    "pgd": {"epochs": 26},
    "trades": {"epochs": 28, "radius_range": (0.01, 0.08)},
    "augment": {"epochs": 60},
}  # fmt: skip
SEEDS_FROM_SCRATCH = {"ours": SEEDS, "augmix": SEEDS}  # one for the others


def scratch(device: str, train: Path = DATA / "cifar10_train.npz") -> Section:
    """ResNet-18 on CIFAR-10 from random weights; training images 45,000-49,999 choose, test images 0-1999 are reported."""
    if not train.exists():
        raise Absent(f"{train.name} does not exist: name the CIFAR-10 training images with --cifar FILE.npz")
    batch, test = cifar_images(train), cifar_test(2000)
    config = {
        "from_scratch": True, "palettes": [NATURAL], "patches": [2, 2, 4], "mirror": True, "training_batch": 256,
        "learning_rate": 0.2, "validation_attacked": 2000,
    }  # fmt: skip
    victim = TorchVictim(resnet18(), mean=MEAN, std=STD, outputs="logits", device=device)
    return Section(victim, Splits(batch[:45_000], test, batch[45_000:]), config, common=test, scratch=True)


def ecg(device: str) -> Section:
    """The CNN of beats, trained on DS1; some patients of DS2 choose, the others are reported."""
    victim = beat_victim("cnn", device)
    test = beats("test")
    reported, chosen = of_records(test, CHOOSING_PATIENTS, others=True), of_records(test, CHOOSING_PATIENTS)
    right = correct(victim, reported.x, reported.y)
    even = balanced(reported.y, right, 300)  # the attacked beats come first
    rest = sorted(set(range(len(reported))) - set(even))
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(0)).tolist()
    reported = reported[even + [rest[i] for i in order][:3000]]
    config = {
        "palettes": [
            ["gaussian_noise@0.02..0.3", "baseline_wander@0.1..0.6", "powerline_hum60@0.03..0.3", "muscle_noise@0.02..0.3"],
            ["gaussian_blur@1.0..6.0", "dead_pixel@0.5..1.0", "gaussian_noise@0.02..0.3", "muscle_noise@0.02..0.3"],
        ],
        "patches": [8, 22, 45], "radius_range": (0.02, 0.5), "aimed_share": 0.8, "epochs": 14, "training_batch": 256,
        "learning_rate": 2e-3,
        "ema_decay": 0.995, "distillation_weight": 0.3, "adversary_budget": 16, "overshoot": 2.0,
    }  # fmt: skip
    order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0)).tolist()
    return Section(victim, Splits(beats("train"), reported, chosen[order[:2000]]), config)


def clips(device: str, packed: Path = DATA / "harden_clips.npz") -> Section:
    """C3D on six actions of UCF-101; different groups train, choose and are reported.

    The first call decodes the videos to train on and keeps them as arrays, for a machine without PyAV."""
    if not packed.exists():
        packed.parent.mkdir(exist_ok=True)
        write_clips(spread_clips(TRAINED_CLIPS, groups=TRAIN_GROUPS), packed)
    victim = clip_victim("c3d", device)
    held_out = ucf_clips()
    chosen = [any(group in name for group in CHOOSING_GROUPS) for name in held_out.ids]
    reported = held_out[[i for i, one in enumerate(chosen) if not one]]
    config = {
        "palettes": [NATURAL], "radius_range": (0.01, 0.12), "epochs": 24, "training_batch": 24, "learning_rate": 1e-3,
        "ema_decay": 0.99, "distillation_weight": 0.3,
    }  # fmt: skip
    choosing = held_out[[i for i, one in enumerate(chosen) if one]]
    return Section(victim, Splits(load(packed), reported, choosing), config, mirrored, attacked=60)


def mirrored(x: Tensor) -> Tensor:
    """Mirror half of the samples."""
    flip = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(flip.view(-1, *(1,) * (x.dim() - 1)), x.flip(-1), x)


SECTIONS: dict[str, Callable[..., Section]] = {"scratch": scratch, "cifar": cifar, "ecg": ecg, "clips": clips}
