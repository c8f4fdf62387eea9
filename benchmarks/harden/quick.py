"""The hardened weights in benchmarks/weights, attacked on a few samples."""

from __future__ import annotations

import time

import torch

from benchmarks.attacks import attack
from benchmarks.beats import beats, of_records
from benchmarks.data import Absent, cifar_test, weights
from benchmarks.harden.corruptions import corrupt
from benchmarks.harden.jobs import TRAINED_KINDS
from benchmarks.harness import Figures, Options
from benchmarks.victims import beat_victim, cifar_victim
from rlab.data.batch import Batch
from rlab.hardening.trainable import correct, twin
from rlab.stats import median_of
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

QUERIES, IMAGES, BEATS, LEVEL = 100, 12, 32, 3
HELD_OUT = ("shot_noise", "impulse_noise", "motion_blur", "pixelate", "jpeg_compression", "fog", "elastic_transform")
REPORTED = ("100", "200", "222", "233")


def quick(options: Options) -> Figures:
    """Ratios of median distances within few queries, gain on held-out corruptions, and change of clean accuracy."""
    began, figures = time.monotonic(), dict[str, float]()
    torch.manual_seed(0)
    for part in (_pictures, _beats):
        try:
            figures |= part()
        except Absent as why:
            print(f"skipped: {why}")
    return figures | {"seconds": time.monotonic() - began}


def _pictures() -> dict[str, float]:
    images, plain = cifar_test(200), cifar_victim("resnet20")
    ours, augmix = (_with(plain, f"{name}_resnet20") for name in ("hardened", "augmix"))
    near = {name: _distance(v, images[:IMAGES]) for name, v in (("plain", plain), ("ours", ours), ("augmix", augmix))}
    assert not set(HELD_OUT) & set(TRAINED_KINDS)
    return {
        "cifar_times": near["ours"] / near["plain"],
        "cifar_augmix_times": near["augmix"] / near["plain"],
        "cifar_heldout_gain": _held_out(ours, images[:60]) - _held_out(plain, images[:60]),
        "clean_change": _accuracy(ours, images) - _accuracy(plain, images),
    }


def _beats() -> dict[str, float]:
    test, victim = of_records(beats("test"), REPORTED), beat_victim("cnn")
    few = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[: 2 * BEATS].tolist()]
    few = few[correct(victim, few.x, few.y).nonzero().flatten()[:BEATS].tolist()]
    return {"ecg_times": _distance(_with(victim, "hardened_beats_cnn"), few) / _distance(victim, few)}


def _with(victim: TorchVictim, name: str) -> TorchVictim:
    other = twin(victim)
    load_weights(other.model, weights(name))
    return other


def _distance(victim: TorchVictim, batch: Batch) -> float:
    result = attack(victim, batch, budget=QUERIES)
    return median_of(result.best_within(QUERIES), result.attacked)


def _accuracy(victim: TorchVictim, batch: Batch) -> float:
    return float(correct(victim, batch.x, batch.y).float().mean())


def _held_out(victim: TorchVictim, batch: Batch) -> float:
    return sum(_accuracy(victim, Batch(corrupt(batch.x, kind, LEVEL), batch.y)) for kind in HELD_OUT) / len(HELD_OUT)
