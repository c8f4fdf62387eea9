"""Is a hardened model harder to break at the same clean accuracy, and by more than with common methods?

python -m benchmarks.harden --device cuda --only cifar --cifar cifar10_train.npz   # several processes share the work
python -m benchmarks.harden --page                       # write results/harden.md from the raw files
python -m benchmarks.harden --quick                      # attack the hardened weights on a few samples

cifar (ResNet-20) needs CIFAR-10 training images (--cifar, an .npz with x uint8 and y), ecg (a CNN of MIT-BIH beats) the records
or their pack, clips (C3D on six actions of UCF-101) the videos, which the first run keeps as arrays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.attacks import attack
from benchmarks.beats import beats, of_records
from benchmarks.data import Absent, cifar_test, weights
from benchmarks.harden.cases import CHOSEN, FROM_SCRATCH, METHODS, SECTIONS, SEEDS, SEEDS_FROM_SCRATCH, Section
from benchmarks.harden.jobs import TRAINED_KINDS, Job, run
from benchmarks.harden.page import RULES, figures, sections
from benchmarks.harden.published import differences, images_per_second
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Raw
from benchmarks.victims import beat_victim, cifar_victim
from benchmarks.victims.compact import compact
from rlab.corruptions import corrupt
from rlab.data.batch import Batch
from rlab.hardening.trainable import correct, twin
from rlab.stats import median_of
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

KEPT_WEIGHTS = {  # what --quick attacks; copy new ones from the raw folder to benchmarks/weights
    "cifar-ours-0": "hardened_resnet20",
    "cifar-augmix-0": "augmix_resnet20",
    "ecg-ours-0": "hardened_beats_cnn",
}


QUERIES, IMAGES, BEATS, LEVEL = 100, 12, 32, 3
HELD_OUT = ("shot_noise", "impulse_noise", "motion_blur", "pixelate", "jpeg_compression", "fog", "elastic_transform")
REPORTED = ("100", "200", "222", "233")


def jobs(options: Options) -> Iterator[Job]:
    for method, values in FROM_SCRATCH.items():
        for seed in SEEDS_FROM_SCRATCH.get(method, SEEDS[:1]):
            yield Job("scratch", method, seed, tuple(values.items()), "ours" if method == "rlat" else "")
    for seed in SEEDS:
        for section in (name for name in SECTIONS if name != "scratch"):
            for method in options.methods.split(","):
                if method != "belief" or (section == "ecg" and not seed):  # slow: beats only, one seed
                    spec, values = CHOSEN[section].get(method, ("", {}))
                    yield Job(section, method, seed, tuple(values.items()), spec)


def pieces(options: Options) -> Iterator[Piece]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for job in jobs(options):
        yield Piece(job.name, job.section, job.settings, partial(make, job, options))


@cache
def section(name: str, device: str, train: Path | None) -> Section:
    return SECTIONS[name](device, train) if name in ("cifar", "scratch") and train else SECTIONS[name](device)


def make(job: Job, options: Options, device: str) -> Raw:
    raw, state = run(job, section(job.section, device, options.cifar), options.keep)
    if job.name in KEPT_WEIGHTS:
        save_file(compact(state, eight_bits=False), options.raw / f"{KEPT_WEIGHTS[job.name]}.safetensors")
    return raw


def quick(options: Options) -> Figures:
    """Ratios of median distances within few queries, gain on held-out corruptions, and change of clean accuracy."""
    figures = dict[str, float]()
    torch.manual_seed(0)
    for part in (_pictures, _beats, _corruptions):
        try:
            figures |= part()
        except Absent as why:
            print(f"skipped: {why}")
    return figures


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


def _corruptions() -> dict[str, float]:
    """The speed of `corrupt`, and its largest mean difference to the published code over the kinds marked exact."""
    figures = {"corrupt_images_per_s": images_per_second()}
    try:
        return figures | {"corruption_match": max(max(far) for far in differences().values())}
    except Absent as why:
        print(f"corruption_match is left out: {why}")
        return figures


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


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas (default: all)")
    parser.add_argument("--cifar", type=Path, help="CIFAR-10 training images, .npz")
    parser.add_argument("--keep", type=Path, help="folder for finished epochs, so that a stopped training goes on")


CLAIM = Claim(
    "harden", "Hardening", __doc__, RULES, quick, pieces, sections, figures, flags, tuple(SECTIONS)
)  # fmt: skip
