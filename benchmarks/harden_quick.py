"""`python -m benchmarks.harden --quick`: the hardened weights of this folder, attacked on a few samples."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks import common
from benchmarks.corruptions import corrupt
from benchmarks.harden_bench import TRAINED_KINDS
from benchmarks.pack_ecg import beats, of_records
from benchmarks.train_ecg import ecg_victim
from rlab.data.batch import Batch
from rlab.hardening.trainable import correct, twin
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.stats import median_of
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

QUERIES, IMAGES, BEATS, LEVEL = 100, 12, 32, 3
HELD_OUT = ("shot_noise", "impulse_noise", "motion_blur", "pixelate", "jpeg_compression", "fog", "elastic_transform")
REPORTED = ("100", "200", "222", "233")


def quick() -> dict[str, float]:
    """Ratios of median distances within few queries, what held-out corruptions gain, and what clean accuracy lost."""
    torch.manual_seed(0)
    figures = dict[str, float]()
    for part in (_pictures, _beats):
        try:
            figures |= part()
        except common.Absent as why:
            print(f"skipped: {why}")
    return figures


def _pictures() -> dict[str, float]:
    images = common.cifar_test(200)
    plain = common.cifar_victim("resnet20")
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
    test, victim = of_records(beats("test"), REPORTED), ecg_victim("cnn")
    few = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[: 2 * BEATS].tolist()]
    few = few[correct(victim, few.x, few.y).nonzero().flatten()[:BEATS].tolist()]
    return {"ecg_times": _distance(_with(victim, "hardened_beats_cnn"), few) / _distance(victim, few)}


def _with(victim: TorchVictim, name: str) -> TorchVictim:
    path = common.WEIGHTS / f"{name}.safetensors"
    if not path.exists():
        raise common.Absent(f"{path.name} is not in {path.parent.name}: --collect puts it there")
    other = twin(victim)
    load_weights(other.model, path)
    return other


def _distance(victim: TorchVictim, batch: Batch) -> float:
    result = run_attack(make_attack(batch, budget=QUERIES), victim, batch)
    return median_of(result.best_within(QUERIES), result.attacked)


def _accuracy(victim: TorchVictim, batch: Batch) -> float:
    return float(correct(victim, batch.x, batch.y).float().mean())


def _held_out(victim: TorchVictim, batch: Batch) -> float:
    change: Callable[[str], Batch] = lambda kind: Batch(corrupt(batch.x, kind, LEVEL), batch.y)  # noqa: E731
    return sum(_accuracy(victim, change(kind)) for kind in HELD_OUT) / len(HELD_OUT)
