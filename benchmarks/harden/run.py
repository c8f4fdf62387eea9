"""Is a hardened model harder to break at the same clean accuracy, and by more than with common methods?

python -m benchmarks.harden --device cuda --only cifar --cifar cifar10_train.npz   # several processes share the work
python -m benchmarks.harden --page                       # write results/harden.md from the raw files
python -m benchmarks.harden --trials --device cuda       # every method with all its settings
python -m benchmarks.harden --choose                     # keep the best settings of these trials
python -m benchmarks.harden --quick                      # attack the hardened weights on a few samples

cifar (ResNet-20) needs CIFAR-10 training images (--cifar, an .npz with x uint8 and y), ecg (a CNN of MIT-BIH beats) the records
or their pack, clips (C3D on six actions of UCF-101) the arrays of `benchmarks.victims.train_clips --unpack`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.harden import trials
from benchmarks.harden.cases import METHODS, SECTIONS, SEEDS, Section, cifar
from benchmarks.harden.jobs import Job, run
from benchmarks.harden.page import RULES, figures, sections
from benchmarks.harden.quick import quick
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Origin, Raw, Store
from benchmarks.victims.compact import compact

KEPT_WEIGHTS = {  # what --quick attacks; copy new ones from the raw folder to benchmarks/weights
    "cifar-ours-0": "hardened_resnet20",
    "cifar-augmix-0": "augmix_resnet20",
    "ecg-ours-0": "hardened_beats_cnn",
}


def jobs(options: Options) -> Iterator[Job]:
    store = Store(options.raw)
    if options.trials:
        yield from trials.jobs(store)
        return
    for seed in SEEDS:
        for section in SECTIONS:
            for method in options.methods.split(","):
                if method != "belief" or (section == "ecg" and not seed):  # slow: beats only, one seed
                    yield trials.chosen(store, section, method, seed)


def pieces(options: Options) -> Iterator[Piece]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for job in jobs(options):
        yield Piece(job.name, job.section, job.settings, partial(make, job, options))


@cache
def section(name: str, device: str, train: Path | None) -> Section:
    return cifar(device, train) if name == "cifar" and train else SECTIONS[name](device)


def make(job: Job, options: Options, device: str) -> Raw:
    raw, weights = run(job, section(job.section, device, options.cifar))
    if job.name in KEPT_WEIGHTS:
        save_file(compact(weights), options.raw / f"{KEPT_WEIGHTS[job.name]}.safetensors")
    return raw


def choose(options: Options) -> Figures:
    store = Store(options.raw)
    best = trials.choose(store)
    store.write(trials.SETTINGS, best, Origin())
    return {name: {method: about["chosen"] for method, about in of.items()} for name, of in best.facts.items()}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas (default: all)")
    parser.add_argument("--trials", action="store_true", help="run each method with all its settings")
    parser.add_argument("--choose", action="store_true", help="choose the best settings among the trials and stop")
    parser.add_argument("--cifar", type=Path, help="CIFAR-10 training images, .npz")


CLAIM = Claim(
    "harden", "Hardening", __doc__ or "", RULES, quick, pieces, sections, figures, flags, tuple(SECTIONS),
    commands={"choose": choose},
)  # fmt: skip
