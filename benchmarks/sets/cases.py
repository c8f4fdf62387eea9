"""Data and three models of four kinds, and how sets of them are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.beats import balanced_test
from benchmarks.data import cifar_test, photos, spread_clips
from benchmarks.ecg import cases as ecg
from benchmarks.victims import BEAT_NETS, beat_victim, cifar_victim, clip_victim, photo_victim
from benchmarks.video.cases import PALETTE as CLIP_PALETTE
from rlab.data.batch import Batch
from rlab.victims.base import Victim


@dataclass(frozen=True)
class Case:
    """Data, models, and how sets are made."""

    title: str
    data: Callable[[int], Batch]
    models: Callable[[], Mapping[str, Victim]]
    palette: tuple[str, ...]
    patch: int
    format: str
    samples: int
    budget: int


CASES = {
    "cifar": Case(
        "CIFAR-10", cifar_test, lambda: {name: cifar_victim(name) for name in ("resnet20", "vgg", "wide_resnet")},
        ("illuminate@0.2,0.4", "gaussian_noise@0.1,0.2"), 4, "png", 16, 50,
    ),
    "photos": Case(
        "ImageNet photos", photos, lambda: {f"lite{number}": photo_victim(number=number) for number in range(3)},
        ("illuminate@0.2,0.4", "gaussian_blur@4", "gaussian_noise@0.2,0.4"), 28, "png", 6, 40,
    ),
    "beats": Case(
        "MIT-BIH beats", balanced_test, lambda: {name: beat_victim(name) for name in BEAT_NETS},
        ecg.PALETTE, ecg.PATCH, "npz", 18, 50,
    ),
    "clips": Case(
        "UCF-101 clips", spread_clips, lambda: {name: clip_victim(name) for name in ("c3d", "tsn", "slowfast")},
        CLIP_PALETTE, 14, "mp4", 6, 30,
    ),
}  # fmt: skip
QUICK = (4, 25)  # samples, queries
SEED = 0
