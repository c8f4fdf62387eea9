"""What `benchmarks.harden` trains and measures: three nets with their data, and one hardening of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import common
from benchmarks.corruptions import KINDS, LEVELS, corrupt
from benchmarks.harden_trials import QUERIES, SAMPLES
from benchmarks.pack_ecg import beats, evened, of_records
from benchmarks.train_ecg import ecg_victim
from benchmarks.train_victims import augmented
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.hardening.comparison import UNCHANGED, Splits, maker, parse_method
from rlab.hardening.evaluation import adaptive_policy, measure_robustness
from rlab.hardening.options import EvaluationOptions, HardenOptions
from rlab.hardening.run import harden
from rlab.hardening.trainable import Weights, blend, correct, goal_of, take, twin
from rlab.progress import quiet
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim
from rlab.victims.weights import load_weights

DATA = common.HERE.parent / "data"
BUDGETS = (50, 200)  # queries
KEEP = 0.008  # of clean accuracy on validation data may be lost where a point is chosen, so that a point is not lost elsewhere
STRENGTHS = (0.4, 0.7, 1.0)  # of the way from the unchanged weights: the curve
SHARES = tuple(i / 20 for i in range(20, 0, -1))
TRAINED_KINDS = ("gaussian_noise", "brightness")  # common corruptions that the palette for pictures holds as well
CHOOSING_PATIENTS = ("111", "213", "228")  # of DS2; the others are reported on
CHOOSING_GROUPS = ("g04", "g05")  # of UCF-101; g06 and g07 are reported on
NATURAL = ("gaussian_noise@0.03..0.3", "gaussian_blur@0.5..2.0", "dead_pixel@0.5..1.0", "illuminate@0.05..0.4")
SHARED: dict[str, Any] = {"rounds": 1, "max_clean_drop": 1.0, "validation_attacked": 200}


@dataclass(frozen=True)
class Section:
    """A net, its data, and how it is hardened; `common` is the set of common corruptions to measure on, if any."""

    victim: TorchVictim
    data: Splits
    config: Mapping[str, Any]
    augment: Callable[[Tensor], Tensor] | None = None
    common: Batch | None = None
    attacked: int = 300


def cifar(device: str, train: Path = DATA / "cifar10_train.npz", net: str = "resnet20") -> Section:
    """ResNet-20 on CIFAR-10; chosen by test images 2000-3999, reported on images 0-1999."""
    if not train.exists():
        raise common.Absent(f"{train.name} is not here: name the CIFAR-10 training images with --cifar FILE.npz")
    with np.load(train, allow_pickle=False) as arrays:
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"].astype("int64"))
    batch = Batch(x.permute(0, 3, 1, 2).contiguous().float() / 255, y, classes=common.CIFAR_CLASSES)
    held_out = common.cifar_test(4000)
    config = {
        "palettes": [NATURAL], "patches": [2, 2, 4], "radius_range": (0.02, 0.16), "epochs": 12, "batch_size": 256,
        "learning_rate": 3e-3, "ema_decay": 0.998, "distillation_weight": 0.3, "aimed_share": 0.5,
    }  # fmt: skip
    victim = common.cifar_victim(net, device)
    victim.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Section(victim, Splits(batch, held_out[:2000], held_out[2000:]), config, augmented, held_out[:1000])


def ecg(device: str) -> Section:
    """The CNN of beats, trained on DS1; patients of DS2 that choose are others than those reported on."""
    victim = ecg_victim("cnn", device)
    test = beats("test")
    told, chosen = of_records(test, CHOOSING_PATIENTS, others=True), of_records(test, CHOOSING_PATIENTS)
    right = correct(victim, told.x, told.y)
    even = evened(told.y, right, 300, (0, 1, 2), 0)  # what is attacked comes first
    rest = sorted(set(range(len(told))) - set(even))
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(0)).tolist()
    told = told[even + [rest[i] for i in order][:3000]]
    config = {
        "palettes": [
            ["gaussian_noise@0.02..0.3", "baseline_wander@0.1..0.6", "powerline_hum60@0.03..0.3", "muscle_noise@0.02..0.3"],
            ["gaussian_blur@1.0..6.0", "dead_pixel@0.5..1.0", "gaussian_noise@0.02..0.3", "muscle_noise@0.02..0.3"],
        ],
        "patches": [8, 22, 45], "radius_range": (0.02, 0.5), "aimed_share": 0.8, "epochs": 14, "batch_size": 256,
        "learning_rate": 2e-3,
        "ema_decay": 0.995, "distillation_weight": 0.3, "adversary_budget": 16, "overshoot": 2.0,
    }  # fmt: skip
    order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(0)).tolist()
    return Section(victim, Splits(beats("train"), told, chosen[order[:2000]]), config)


def clips(device: str, train: Path = DATA / "clips_train.npz", test: Path = DATA / "clips_test.npz") -> Section:
    """C3D on six actions of UCF-101; groups that choose are others than those reported on, and both than those trained on."""
    from rlab.victims.zoo import clip_victim

    if not train.exists() or not test.exists():
        raise common.Absent(f"{train.name} or {test.name} is not here: python -m benchmarks.video --unpack makes them")
    victim = _on(clip_victim(common.WEIGHTS / "c3d.safetensors"), device)
    held_out = load(test)
    chosen = [any(group in name for group in CHOOSING_GROUPS) for name in held_out.ids]
    told = held_out[[i for i, one in enumerate(chosen) if not one]]
    config = {
        "palettes": [NATURAL], "radius_range": (0.01, 0.12), "epochs": 24, "batch_size": 24, "learning_rate": 1e-3,
        "ema_decay": 0.99, "distillation_weight": 0.3,
    }  # fmt: skip
    choosing = held_out[[i for i, one in enumerate(chosen) if one]]
    return Section(victim, Splits(load(train), told, choosing), config, mirrored, attacked=60)


def mirrored(x: Tensor) -> Tensor:
    """Half of them, from left to right."""
    flip = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(flip.view(-1, *(1,) * (x.dim() - 1)), x.flip(-1), x)


def _on(victim: TorchVictim, device: str) -> TorchVictim:
    victim.model.to(device)
    victim.device = torch.device(device)
    return victim


SECTIONS: dict[str, Callable[..., Section]] = {"cifar": cifar, "ecg": ecg, "clips": clips}


@dataclass(frozen=True)
class Job:
    """One hardening of one net, to be measured; `values` go before the section's configuration."""

    section: str
    method: str
    seed: int
    values: tuple[tuple[str, Any], ...] = ()
    tag: str = ""
    whole: bool = True  # with all attacks and the curve; else what settings are chosen by
    spec: str = ""  # the method with a strength, where that is not its usual one
    trial: int | None = None  # its number, see `harden_trials`

    @property
    def name(self) -> str:
        return "-".join(filter(None, ["harden", self.section, self.method.replace("@", "_"), self.tag, str(self.seed)]))


def run(job: Job, section: Section, few: int | None = None) -> tuple[dict[str, Any], Weights]:
    """Its figures, and the weights at the chosen point; `few` samples are attacked."""
    began = time.monotonic()
    section = section if job.whole else _to_choose_by(section, None if job.trial is None else SAMPLES.get(job.section))
    victim, data = section.victim, section.data
    assert data.validation is not None
    victim.chunk = 4096 if victim.device.type == "cuda" else 256
    base = check(HardenOptions, SHARED | dict(section.config) | {"seed": job.seed} | dict(job.values))
    options = parse_method(job.spec or job.method, base.filled(data.train), data.train, goal_of(victim))
    start = take(victim.model)
    figures: dict[str, Any] = {
        "section": job.section, "method": job.method, "seed": job.seed, "maker": maker(job.method, base), "tag": job.tag,
        "train": len(data.train), "validation": len(data.validation), "test": len(data.test), "keep": KEEP,
        "config": base.plain(), "epochs": base.total_epochs, "device": _device(victim),
        "spec": job.spec or job.method, "values": dict(job.values), "trial": job.trial,
    }  # fmt: skip
    if options is None:
        full, seconds = start, 0.0
    else:
        chosen = options.updated(dict(job.values) | {"augment": section.augment})
        hardened = harden(victim, data.train, chosen, validation=data.validation, progress=quiet)
        full, seconds = take(hardened.model), time.monotonic() - began
        history = hardened.history
        figures |= {
            "kept_epoch": hardened.best.number,
            "rows": hardened.rows,
            "history": [[e.loss, e.clean, e.robust] for e in history[1:]],
        }
    other = twin(victim)

    def at(share: float) -> TorchVictim:
        other.model.load_state_dict(blend(start, full, share))
        return other

    def clean(share: float) -> float:
        return float(correct(at(share), data.validation.x, data.validation.y).float().mean())  # type: ignore[union-attr]

    least = clean(0.0) - KEEP
    share = 0.0 if options is None else next((s for s in SHARES if clean(s) >= least), 0.0)
    figures |= {"seconds": seconds, "share": share, "points": []}
    figures["points"].append(measure(at(share), section, job, share, all_of_it=job.whole, few=few))
    if job.whole and options is not None and not job.seed:  # the curve, of one seed
        figures["points"] += [measure(at(s), section, job, s, False, few) for s in STRENGTHS if s != share]
    figures["all_seconds"] = time.monotonic() - began
    return figures, take(at(share).model)


def _to_choose_by(section: Section, samples: int | None) -> Section:
    """Measured on the data that settings are chosen by, not on those that are reported on; `samples` to train on."""
    data, chosen = section.data, section.data.validation
    assert chosen is not None
    return replace(section, data=Splits(data.train[:samples], chosen, chosen), common=None)


def _device(victim: TorchVictim) -> str:
    return torch.cuda.get_device_name() if victim.device.type == "cuda" else "CPU"


def measure(
    victim: TorchVictim, section: Section, job: Job, share: float, all_of_it: bool, few: int | None
) -> dict[str, Any]:
    """Clean accuracy, distances to flip within the budgets, and common corruptions; with `all_of_it` the other attacks too."""
    test = section.data.test
    attacked = min(few or section.attacked, len(test))
    budget = BUDGETS[-1] if job.trial is None else QUERIES
    values = {
        "attack": {"budget": budget, "seed": job.seed, "chunk": attacked if victim.device.type == "cuda" else None},
        "attacked": attacked, "square_budget": budget,
    }  # fmt: skip
    evaluation = check(EvaluationOptions, values)
    point: dict[str, Any] = {"share": share, "whole": all_of_it}
    if all_of_it:
        measured = measure_robustness(victim, test if few is None else test[: max(few, 100)], evaluation)
        result, figures = measured.attack, measured.figures
        assert result is not None
        point |= {name: float(figures[name].mean()) for name in ("square", "pgd", "corruptions", "held_out")}
    else:
        result = run_attack(evaluation.attack.build(test[:attacked]), victim, test[:attacked])
    point["clean"] = float(correct(victim, test.x, test.y).float().mean())
    point |= _distances(result)
    if section.common is not None:
        point["common"] = common_corruptions(victim, section.common if few is None else section.common[:few])
    return point


def retrained(section: Section, weights: Path, minutes: float, folder: Path) -> dict[str, Any]:
    """Distances under a prior that was trained against this very model."""
    victim = twin(section.victim)
    load_weights(victim.model, weights)
    options = check(HardenOptions, SHARED | dict(section.config)).filled(section.data.train)
    policy = adaptive_policy(section.data.train[:6000], options, folder, minutes)(victim)
    few = section.data.test[: section.attacked]
    attack = {"budget": BUDGETS[-1], "chunk": len(few) if victim.device.type == "cuda" else None, "policy": policy}
    result = run_attack(check(EvaluationOptions, {"attack": attack}).attack.build(few), victim, few)
    return _distances(result)


def _distances(result: AttackResult) -> dict[str, list[float | None]]:
    """Of the best flip within each budget, by sample; None where it was not attacked."""
    return {
        f"l2_{budget}": [
            round(float(v), 4) if a else None for v, a in zip(result.best_within(budget), result.attacked, strict=True)
        ]
        for budget in BUDGETS
    }


def common_corruptions(victim: TorchVictim, batch: Batch) -> dict[str, list[float]]:
    """Accuracy by kind and severity."""
    y = batch.y.to(victim.device)
    found = {}
    for kind in KINDS:
        sets = [_corrupted(batch, kind, level, victim.device) for level in range(1, LEVELS + 1)]
        found[kind] = [float((victim(part.float() / 255, "verify").argmax(1) == y).float().mean()) for part in sets]
    return found


@cache
def _sets(kind: str, level: int, device: torch.device) -> dict[int, Tensor]:
    return {}


def _corrupted(batch: Batch, kind: str, level: int, device: torch.device) -> Tensor:
    """Kept for the next model, as bytes."""
    kept = _sets(kind, level, device)
    if len(batch) not in kept:
        kept[len(batch)] = (corrupt(batch.x.to(device), kind, level) * 255).round().to(torch.uint8)
    return kept[len(batch)]


def held_out(point: Mapping[str, Any]) -> float:
    """Mean accuracy under the common corruptions that the palette does not hold."""
    return float(np.mean([v for kind, values in point["common"].items() if kind not in TRAINED_KINDS for v in values]))


def smaller(section: Section, samples: int) -> Section:
    """For a smoke test."""
    data = Splits(*(part[:samples] for part in section.data if part is not None))
    shared = None if section.common is None else section.common[:samples]
    return replace(section, data=data, common=shared, attacked=min(section.attacked, samples))


METHODS = (UNCHANGED, "ours", "augmix", "augment", "pgd", "fgsm", "trades", "belief")
