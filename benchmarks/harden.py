"""Does training on what an agent finds help, and more than what one would do without it? Five ways, several attacks.

python -m benchmarks.harden                                   # all sections, results in benchmarks/results/harden.md
python -m benchmarks.harden --only cifar --device cuda        # one section; of cifar, ecg, clips
python -m benchmarks.harden --only ecg --methods unchanged,ours --seeds 0 --set epochs=4 --set learning_rate=0.0005    # a trial
python -m benchmarks.harden --quick                           # under a minute: few samples, one seed, writes nothing

cifar needs CIFAR-10 training images (--cifar, an .npz with x uint8 and y), ecg the MIT-BIH records or their pack, clips
uses the pack of `benchmarks.train_clips` where it is, else the simulated clips of the demo. With --out DIR a stopped run
goes on. What is reported on is never trained on, and not what weights are chosen by.

Every method fine-tunes the same model on the same data for the same epochs, under the same rule on clean accuracy; only who
makes the harder samples differs. Each is measured under the policy searching on the hardened model itself (agent), what
the policy found on the original (transfer), Square, PGD, the palette's filters over the whole input (corruptions) and all
other filters (held-out). Shares are of all test samples; L2 to flip is the median over samples the model had right, a
sample that was not flipped counting as infinitely far. Brackets are 95% bootstrap intervals over seeds and samples.
"""

from __future__ import annotations

import argparse
import time
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import common
from benchmarks.pack_ecg import beats, evened
from benchmarks.train_ecg import ecg_victim
from benchmarks.train_victims import augmented
from rlab.core import defaults
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.hardening.comparison import (
    METHODS,
    HardeningComparison,
    HardeningComparisonOptions,
    Splits,
    compare_hardening,
)
from rlab.hardening.evaluation import RobustnessMeasurement
from rlab.hardening.options import EvaluationOptions, HardenOptions
from rlab.hardening.sections import comparison_table
from rlab.present.table import markdown
from rlab.runs.config import check
from rlab.victims.torch_module import TorchVictim
from rlab.victims.zoo import demo_victim

CIFAR = common.HERE.parent / "data" / "cifar10_train.npz"
CLIPS = common.HERE.parent / "data" / "clips.npz"
# Severities are ranges, so that the models do not learn one strength by heart; what the models are measured with is
# the package's default palette and patch for the kind of data.
PALETTES: dict[str, list[list[str]]] = {
    "image": [["gaussian_noise@0.05..0.4", "gaussian_blur@0.7..2.0", "dead_pixel@1.0", "illuminate@0.08..0.4"]],
    "signal": [
        ["gaussian_noise@0.02..0.3", "baseline_wander@0.1..0.6", "powerline_hum60@0.03..0.3", "muscle_noise@0.02..0.3"],
        ["gaussian_blur@1.0..6.0", "dead_pixel@1.0", "gaussian_noise@0.02..0.3", "muscle_noise@0.02..0.3"],
    ],
    "video": [["gaussian_noise@0.05..0.4", "gaussian_blur@0.7..2.0", "dead_pixel@1.0", "illuminate@0.08..0.4"]],
}
SHARED = {"adversary": "gradient", "rounds": 1, "batch_norm": "train", "max_clean_drop": 0.005}


@dataclass
class Bench:
    """The options of a run, and what it has found so far."""

    policy: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str
    cifar: Path
    net: str
    clips: Path
    samples: int | None
    budget: int | None
    sets: dict[str, Any]
    out: Path | None
    quick: bool
    pages: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        name: str,
        victim: TorchVictim,
        data: Splits,
        config: dict[str, Any],
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        began = time.monotonic()
        small = {"epochs": 1, "validation_attacked": 16, "batch_size": 32} if self.quick else {}
        chosen = check(HardenOptions, SHARED | {"palettes": PALETTES[data.train.kind]} | config | self.sets | small)
        options = {
            "methods": ("unchanged", "ours") if self.quick else self.methods,
            "seeds": (0,) if self.quick else self.seeds,
            "harden": chosen.updated({"augment": augment}),
            "evaluation": self.evaluation(),
        }

        def tell(method: str, seed: int, measurement: RobustnessMeasurement) -> None:
            figures, spent = measurement.figures, time.monotonic() - began
            l2 = float(np.nanmedian(figures["agent_l2"]))
            clean, rough = figures["clean"].mean(), figures["corruptions"].mean()
            print(
                f"{name}, {method}, seed {seed}: clean {clean:.1%}, L2 {l2:.3g}, corruptions {rough:.1%}, {spent:.0f} s"
            )

        out = None if self.out is None else self.out / name
        comparison = compare_hardening(victim, data, check(HardeningComparisonOptions, options), out, tell)
        self.page(name, comparison, data, chosen.plain())

    def evaluation(self) -> EvaluationOptions:
        attacked = 4 if self.quick else self.samples or 400
        budget = 30 if self.quick else self.budget or 1000
        chunk = None if self.device == "cpu" else attacked
        attack = {"policy": self.policy, "budget": budget, "chunk": chunk}
        values = {"attack": attack, "attacked": attacked, "square_budget": min(500, budget)}
        return check(EvaluationOptions, values)

    def few(self, batch: Batch, usual: int) -> Batch:
        return batch[: min(usual, 4 if self.quick else usual)]

    def page(self, name: str, comparison: HardeningComparison, data: Splits, config: dict[str, Any]) -> None:
        assert data.validation is not None
        for method in comparison.methods:
            estimates = comparison.estimates(method)
            self.figures |= {f"{name}_{method}_{figure}": estimate.value for figure, estimate in estimates.items()}
            self.figures[f"{name}_{method}_l2_ratio_low"] = estimates["l2_ratio"].low
        evaluation = self.evaluation()
        about = (
            f"{len(data.train)} samples to train on, {len(data.validation)} to choose by, {len(data.test)} to report on, "
            f"of which at most {evaluation.attacked} are attacked with a budget of {evaluation.attack.budget}; "
            f"{len(comparison.seeds)} seeds; `{config}`."
        )
        self.pages.append("\n\n".join([f"## {name}", about, markdown(comparison_table(comparison))]))


def cifar(bench: Bench) -> None:
    """ResNet-20 or another net of CIFAR-10; chosen by test images 2000-4999, reported on images 0-1999."""
    if not bench.cifar.exists():
        raise common.Absent(f"{bench.cifar.name} is not here: name the CIFAR-10 training images with --cifar FILE.npz")
    with np.load(bench.cifar, allow_pickle=False) as arrays:
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"].astype("int64"))
    x, y = (x[:32], y[:32]) if bench.quick else (x, y)
    batch = Batch(x.permute(0, 3, 1, 2).contiguous().float() / 255, y, classes=common.CIFAR_CLASSES)
    held_out = common.cifar_test(5000)
    data = Splits(batch, bench.few(held_out[:2000], 2000), bench.few(held_out[2000:], 3000))
    victim = _on(common.cifar_victim(bench.net), bench.device)
    config = {
        "epochs": 9, "batch_size": 512, "learning_rate": 1.5e-3, "patches": [2, 4], "radius_range": (0.02, 0.25),
        "ema_decay": 0.995, "adversarial_share": 0.6, "max_clean_drop": 0.009,
    }  # fmt: skip
    bench.run("cifar" if bench.net == "resnet20" else f"cifar_{bench.net}", victim, data, config, augmented)


def ecg(bench: Bench) -> None:
    """The CNN of beats, trained on DS1; half of the beats of DS2 (9 of its 22 records) choose, the other half are reported on."""
    victim = ecg_victim("cnn", bench.device)
    train, test = beats("train"), beats("test")
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0)).tolist()
    half = len(order) // 2
    chosen, told = test[order[:half]], test[order[half:]]
    right = victim(told.x.to(victim.device), "verify").argmax(1).cpu() == told.y
    even = evened(told.y, right, 400, (0, 1, 2), 0)  # what is attacked comes first
    told = told[even + sorted(set(range(len(told))) - set(even))]
    data = Splits(train[: 32 if bench.quick else None], bench.few(told, 6000), bench.few(chosen, 6000))
    config = {
        "adversary": "auto", "adversary_budget": 16, "overshoot": 2.0, "adversarial_share": 0.7, "epochs": 14,
        "batch_size": 512, "learning_rate": 1e-3, "patches": [8, 16], "radius_range": (0.01, 0.1),
    }  # fmt: skip
    bench.run("ecg", victim, data, config)


def clips(bench: Bench) -> None:
    """C3D on six actions of UCF-101 where its weights and the pack are, else the demo's net on simulated clips."""
    weights = common.WEIGHTS / "c3d.safetensors"
    if weights.exists() and bench.clips.exists() and not bench.quick:
        victim, data = _ucf(weights, bench)
    else:
        victim = demo_victim("clips")
        few = 8 if bench.quick else 500
        train = load("demo:clips", split="train", limit=16 if bench.quick else None)
        test = load("demo:clips", limit=2 * few)
        data = Splits(train, test[:few], test[few:])
    assert data.validation is not None
    train = data.train[: 16 if bench.quick else None]
    data = Splits(train, bench.few(data.test, 500), bench.few(data.validation, 500))
    config = {"epochs": 10, "batch_size": 64, "learning_rate": 1e-3, "radius_range": (0.01, 0.12)}
    bench.run("clips", _on(victim, bench.device), data, config)


def _ucf(weights: Path, bench: Bench) -> tuple[TorchVictim, Splits]:
    from benchmarks.train_clips import plain, unpack
    from rlab.victims.zoo import clip_victim
    from rlab.victims.zoo.clips import CLIP_MEAN, CLIP_STD

    def batch(name: str) -> Batch:
        clips = unpack(bench.clips, name)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1, 1) for v in (CLIP_MEAN, CLIP_STD))
        x = torch.cat([plain(part) * std + mean for part in clips.x.split(16)])
        return Batch(x.clamp(0, 1), clips.y, classes=clips.classes)

    train, test = batch("train"), batch("test")
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0)).tolist()
    half = len(order) // 2
    return clip_victim(weights), Splits(train, test[order[half:]], test[order[:half]])


def _on(victim: TorchVictim, device: str) -> TorchVictim:
    victim.model.to(device)
    victim.device = torch.device(device)
    victim.chunk = 256 if device == "cpu" else 4096
    return victim


SECTIONS: dict[str, Callable[[Bench], None]] = {"cifar": cifar, "ecg": ecg, "clips": clips}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--policy", default=defaults.POLICY, help="who attacks the hardened models; the agent's file")
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas; a radius behind '@': pgd_l2@0.5")
    parser.add_argument("--seeds", default="0,1,2", help="with commas")
    parser.add_argument("--samples", type=int, help="at most so many test samples attacked with queries, usually 400")
    parser.add_argument("--budget", type=int, help="queries a test sample, usually 1000")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of a hardening: epochs=4")
    parser.add_argument("--cifar", type=Path, default=CIFAR, help="CIFAR-10 training images")
    parser.add_argument("--net", default="resnet20", help="of CIFAR-10, one of benchmarks/weights: vgg")
    parser.add_argument("--clips", type=Path, default=CLIPS, help="the pack of benchmarks.train_clips")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="keep weights and checkpoints here, and go on from them")
    parser.add_argument("--page", type=Path, default=common.RESULTS / "harden.md")
    parser.add_argument("--quick", action="store_true", help="under a minute, writes nothing")
    o = parser.parse_args()
    chosen = [name.strip() for name in o.only.split(",")]
    if unknown := [name for name in chosen if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    sets = {name: _value(text) for name, _, text in (word.partition("=") for word in o.set)}
    methods = tuple(name.strip() for name in o.methods.split(","))
    seeds = tuple(int(word) for word in o.seeds.split(","))
    bench = Bench(
        o.policy, methods, seeds, o.device, o.cifar, o.net, o.clips, o.samples, o.budget, sets, o.out, o.quick
    )
    began = time.monotonic()
    for name in chosen:
        try:
            SECTIONS[name](bench)
        except common.Absent as why:
            print(f"skipped {name}: {why}")
    if bench.pages and not o.quick:
        rules = (__doc__ or "").rstrip().split("\n\n")[-1].replace("\n", " ")
        common.write_page(o.page, "Hardening", rules, ", ".join(map(str, seeds)), bench.pages)
    common.finish(bench.figures | {"seconds": time.monotonic() - began})


def _value(text: str) -> Any:
    """A number or a list as Python writes it; anything else is a word."""
    try:
        return literal_eval(text)
    except (SyntaxError, ValueError):
        return text


if __name__ == "__main__":
    main()
