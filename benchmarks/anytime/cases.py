"""The victims, palettes and policies of the anytime benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.attacks import HEADLINE_SEEDS, NATURAL
from benchmarks.beats import balanced_test
from benchmarks.data import cifar_test, photos_and_pets
from benchmarks.ecg.cases import PALETTE
from benchmarks.victims import beat_victim, cifar_victim, photo_victim
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.victims.base import Victim
from rlab.victims.zoo import demo_victim

OURS, WITHOUT = "auto", "belief"
BASELINES = ("square", "random")
VARIANTS: dict[str, dict[str, Any]] = {
    "surrogates": {"policy": "belief", "surrogates": True},
    "no-draws": {"policy": "auto(temperature=0.0, warming=0.0)"},
    "one-way": {"policy": "auto(rivals=1)"},
}
PARTS = {  # rows of the table of parts
    "auto": "trained prior",
    "belief": "no prior",
    "surrogates": "five surrogates in place of a prior",
    "no-draws": "trained prior, mean of the belief in place of draws",
    "one-way": "trained prior, one class believed about",
}
Load = Callable[[int, str], tuple[Victim, Batch]]  # samples, device


@dataclass(frozen=True)
class Case:
    """One victim under one palette; `aims` are the ratios to reach at q = 5, 20, 50, 200."""

    group: str
    name: str
    load: Load
    palette: tuple[str, ...] | None
    patch: int | None
    samples: int
    aims: tuple[float, float, float, float]
    policy: str = OURS
    budget: int = 200  # queries
    seeds: int = 1

    @property
    def raw(self) -> str:
        """How the names of raw files begin; cases that differ in our policy alone share the baselines."""
        return self.name.partition(",")[0].replace(" ", "_")

    def file(self, policy: str, seed: int = 0) -> str:
        return f"{self.raw}-{policy}-b{self.budget}{f'-s{seed}' if seed else ''}"


def cifar(name: str) -> Load:
    return lambda samples, device: (cifar_victim(name, device), cifar_test(samples))


def beats(name: str) -> Load:
    return lambda samples, device: (beat_victim(name, device), balanced_test(samples))


def photos(number: int) -> Load:
    return lambda samples, device: (photo_victim(device, number), photos_and_pets(samples))


def demo(name: str) -> Load:
    return lambda samples, device: (demo_victim(name, device), load(f"demo:{name}", limit=samples, order="first"))


_NATURAL, _ALONE, _SHIFT = (0.55, 0.42, 0.36, 0.28), (0.70, 0.45, 0.36, 0.28), (1.0, 0.95, 0.85, 0.80)
_PHOTOS, _ECG, _DEMO = (0.55, 0.36, 0.28, 0.18), (0.9, 0.75, 0.6, 0.5), (1.0, 0.7, 0.6, 0.5)
CASES = (
    Case("images", "vgg natural", cifar("vgg"), NATURAL, 4, 500, _NATURAL, seeds=HEADLINE_SEEDS),
    Case("images", "wrn natural", cifar("wide_resnet"), NATURAL, 4, 500, _NATURAL),
    Case("transformer", "vit natural", cifar("vit"), NATURAL, 4, 500, _NATURAL),
    Case("robust", "robust natural", cifar("cnn_a_mix"), NATURAL, 4, 500, (1.0, 0.62, 0.50, 0.42)),
    Case("noprior", "vgg natural, nothing trained", cifar("vgg"), NATURAL, 4, 500, _ALONE, WITHOUT),
    Case("noprior", "wrn natural, nothing trained", cifar("wide_resnet"), NATURAL, 4, 500, _ALONE, WITHOUT),
    Case("shift", "vgg shift 0.1 4x4", cifar("vgg"), ("channel_shift@0.1",), 4, 300, _SHIFT),
    Case("shift", "vgg shift 0.05 2x2", cifar("vgg"), ("channel_shift@0.05",), 2, 300, _SHIFT),
    Case("shift", "vgg shift 0.03 1x1", cifar("vgg"), ("channel_shift@0.03",), 1, 300, _SHIFT),
    Case("photos", "lite1 natural", photos(1), NATURAL, 14, 264, _PHOTOS, WITHOUT, seeds=HEADLINE_SEEDS),
    Case("photos", "lite0 natural", photos(0), NATURAL, 14, 264, _PHOTOS, WITHOUT),
    Case("ecg", "beats cnn", beats("cnn"), PALETTE, 10, 150, _ECG, seeds=HEADLINE_SEEDS),
    Case("ecg", "beats transformer", beats("transformer"), PALETTE, 10, 150, _ECG),
    Case("demo", "demo digits", demo("digits"), None, None, 200, _DEMO),
    Case("demo", "demo ecg", demo("ecg"), None, None, 200, _DEMO),
)
GROUPS = tuple(dict.fromkeys(case.group for case in CASES))
STUDIED = tuple(case for case in CASES if case.group == "images")  # cases of the table of parts
