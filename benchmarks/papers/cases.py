"""The papers' agents: what they are trained on, what is switched off, and the attacks they are compared with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch

from benchmarks.attacks import NATURAL, attack, flips
from benchmarks.data import CIFAR_CLASSES, DATA, WEIGHTS, Absent, real, root
from benchmarks.raw import Curves
from benchmarks.victims import cifar_victim, clip_victim, train_clips
from rlab.data.batch import Batch
from rlab.papers.saliency import saliency_maps
from rlab.policies import parse_policy
from rlab.storage.config import check
from rlab.victims.torch_module import TorchVictim

AGENTS, RUNS = WEIGHTS / "papers", DATA / "papers_runs"
CLIP_PACK, CLIP_STEPS = DATA / "papers" / "clips.npz", {"train": 5, "test": 3}  # every fifth and third clip
SALIENCY = DATA / "papers" / "saliency.safetensors"  # objectness and motion of the clips to train on, which need OpenCV
TRAIN_IMAGES, TEST_IMAGES, PACKED_IMAGES = (0, 3000), (3000, 5000), (1800, 300)  # CIFAR-10 test images
BUDGETS = {"dual_action": (1000, 5000), "two_agents": (100, 300)}  # queries within which results are reported
SHARED: Mapping[str, Mapping[str, Any]] = {
    "dual_action": {
        "palettes": [NATURAL], "validation_palette": NATURAL, "entries": 5, "patches": [2], "sweep": 0.125, "add": 4,
        "remove": 2, "rows": 96, "batch": 256, "gradient_steps": 4, "budget": 600, "validation_samples": 24,
        "validations": 5, "group": 96, "replay": 6144, "reward": "dilution_l2",
        "confidence": "probability",
    },
    "two_agents": {
        "palettes": [["gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"]],
        "validation_palette": ["gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0"], "entries": 3,
        "patches": [8], "rows": 96, "budget": 300, "validation_samples": 16, "validations": 5, "horizon": 60,
        "rollout": 16, "gamma": 0.95, "saliency": str(SALIENCY.relative_to(DATA.parent)),
    },
}  # fmt: skip
TRAINED_ON = {
    "dual_action": ("resnet20", "all_conv", "inverted", "mixer", "robust_all_conv"),
    "two_agents": ("c3d", "tsn", "tsm"),
}
SEEN = {"dual_action": ("resnet20", "mixer"), "two_agents": ("c3d", "tsm")}
UNSEEN = {"dual_action": ("vgg", "wide_resnet", "vit"), "two_agents": ("slowfast",)}
OWN = {"dual_action": "vgg", "two_agents": "slowfast"}  # the victim of agents that are trained on nothing else


@dataclass(frozen=True)
class Variant:
    """An agent to train; `options` change those of its kind."""

    kind: str
    name: str = "main"
    minutes: float = 1.8  # on a GPU that six trainings share
    options: Mapping[str, Any] = field(default_factory=dict)
    own: bool = False  # trained on the victim it attacks, as in the papers

    @property
    def victims(self) -> tuple[str, ...]:
        return (OWN[self.kind],) if self.own else TRAINED_ON[self.kind]

    def file(self, seed: int) -> Path:
        return AGENTS / f"{self.kind}-{self.name}-{seed}.safetensors"

    def policy(self, seed: int, options: str = "") -> str:
        if not self.file(seed).exists():
            raise Absent(f"{self.file(seed).name} is not in {AGENTS}: train it with --only train-{self.kind}")
        return f"{self.kind}(agent={str(self.file(seed))!r}{', ' if options else ''}{options})"


MAIN = {kind: Variant(kind, minutes=8.0) for kind in SHARED}
SEEDS = (0, 1, 2)  # of the main agents; the variants have the first
VARIANTS = (
    Variant("dual_action", "adding_only", 4.3, options={"restore": False}),
    Variant("dual_action", "ppo", 4.3, options={"learner": "ppo"}),
    Variant("dual_action", "a2c", 4.3, options={"learner": "a2c"}),
    Variant("dual_action", "dqn", 4.3),
    Variant("dual_action", "own", own=True),
    Variant("dual_action", "patch4", options={"patches": [4]}),
    Variant("two_agents", "untrained", options={"updates": 1, "validations": 1, "learning_rate": 1e-9}),
    Variant("two_agents", "short"),
    Variant("two_agents", "one_agent", options={"network": {"temporal": False}}),
    Variant("two_agents", "l1_only", options={"network": {"levels": 1}}),
    Variant("two_agents", "no_objectness", options={"objectness": 0.0}),
    Variant("two_agents", "no_motion", options={"motion": 0.0}),
    Variant("two_agents", "limit25", options={"limit": 0.25}),
    Variant("two_agents", "patch5", options={"patches": [5]}),
    Variant("two_agents", "patch13", options={"patches": [13]}),
    Variant("two_agents", "own", own=True),
)


def entry_points(kind: str) -> tuple[Any, Any]:
    """The options and the training of a kind; loaded by name, as this machine may lack what the other kind needs."""
    options = {"dual_action": "DualActionConfig", "two_agents": "TwoAgentsConfig"}[kind]
    return resolve_name(f"rlab.papers.{kind}:{options}"), resolve_name(f"rlab.papers.{kind}:train")


def trainings() -> Iterator[tuple[Variant, int]]:
    for variant in MAIN.values():
        yield from ((variant, seed) for seed in SEEDS)
    yield from ((variant, 0) for variant in VARIANTS)


def cifar_part(first: int, last: int) -> Batch:
    """CIFAR-10 test images first..last-1, as far as cifar10/papers.npz of --pack holds them, else of the whole file."""
    packed, whole = root() / "cifar10" / "papers.npz", root() / "cifar10" / "test_0_4999.npz"
    path = packed if packed.exists() else whole
    if not path.exists():
        raise Absent(f"neither {packed.name} nor {whole.name} is in {whole.parent}: set RLAB_REAL, or run --pack")
    with np.load(path, allow_pickle=False) as held:
        number = held["number"] if "number" in held else np.arange(len(held["y"]))
        rows = (number >= first) & (number < last)
        x, y, ids = held["x"][rows], held["y"][rows].astype("int64"), [f"cifar-{i:05d}" for i in number[rows]]
    pictures = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous().float() / 255
    return Batch(pictures, torch.from_numpy(y), tuple(ids), classes=CIFAR_CLASSES)


def pack(folder: Path) -> float:
    """Write what the dual-action agent needs on another machine; it then reads it with RLAB_REAL=folder -> megabytes."""
    whole = root() / "cifar10"
    with np.load(whole / "test_0_4999.npz", allow_pickle=False) as held:
        kept = np.concatenate([np.arange(PACKED_IMAGES[0]), TEST_IMAGES[0] + np.arange(PACKED_IMAGES[1])])
        (folder / "cifar10").mkdir(parents=True, exist_ok=True)
        path = folder / "cifar10" / "papers.npz"
        np.savez_compressed(path, x=held["x"][kept], y=held["y"][kept], number=kept)
    shutil.copy(whole / "resnet20.safetensors", folder / "cifar10")
    return path.stat().st_size / 1e6


def pack_clips(path: Path) -> float:
    """Write a part of the clips, as `benchmarks.victims.train_clips --pack` writes all of them -> megabytes."""
    whole = path.with_name("clips_whole.npz")
    if not whole.exists():
        train_clips.pack(real("ucf6"), whole)
    held: dict[str, Any] = {}
    with np.load(whole, allow_pickle=False) as full:
        held["classes"] = full["classes"]
        for part, step in CLIP_STEPS.items():
            sheets, ends = full[f"{part}_sheets"], full[f"{part}_ends"]
            kept = [sheets[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)][::step]
            held |= {f"{part}_y": full[f"{part}_y"][::step], f"{part}_sheets": np.concatenate(kept)}
            held[f"{part}_ends"] = np.cumsum([len(sheet) for sheet in kept])
    np.savez(path, **held)
    batch = train_clips.packed_batch(path, "train")
    saliency_maps(batch.x, batch.bounds, SALIENCY)
    return (path.stat().st_size + SALIENCY.stat().st_size) / 1e6


@cache
def data(kind: str, part: str) -> Batch:
    """Samples to train on, or to report."""
    if kind == "dual_action":
        return cifar_part(*(TRAIN_IMAGES if part == "train" else TEST_IMAGES))
    if not CLIP_PACK.exists():
        raise Absent(f"{CLIP_PACK} is missing: make it with python -m benchmarks.papers --pack")
    return train_clips.packed_batch(CLIP_PACK, part)


def victim(kind: str, name: str, device: str) -> TorchVictim:
    return cifar_victim(name, device) if kind == "dual_action" else clip_victim(name, device)


def train(variant: Variant, seed: int, device: str) -> list[dict[str, float]]:
    """Train or resume, and store the agent -> the lines of its log."""
    declares, trains = entry_points(variant.kind)
    values: dict[str, Any] = {"models": variant.victims, "data": {"path": "benchmarks.papers"}, "seed": seed}
    values |= {**SHARED[variant.kind], "minutes": variant.minutes, "device": device, **variant.options}
    folder, told = RUNS / variant.file(seed).stem, list[dict[str, float]]()
    victims = [victim(variant.kind, name, device) for name in variant.victims]
    path = trains(victims, data(variant.kind, "train"), None, check(declares, values), folder, told.append)
    AGENTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, variant.file(seed))
    return told


@dataclass(frozen=True)
class Row:
    """An attack to compare; `variant` is None for a policy by its name."""

    kind: str
    name: str
    variant: Variant | None = None
    seed: int = 0
    options: str = ""
    attack: Mapping[str, Any] = field(default_factory=dict)

    def file(self, victim_name: str) -> str:
        return "".join(
            c if c.isalnum() or c in "-." else "_" for c in f"{self.kind}-{victim_name}-{self.name}-{self.seed}"
        )

    def run(self, victim_name: str, samples: int, device: str) -> Curves:
        policy = self.name if self.variant is None else self.variant.policy(self.seed, self.options)
        shared: dict[str, Any] = {"palette": SHARED[self.kind]["validation_palette"], "budget": BUDGETS[self.kind][-1]}
        side = self.attack.get("patch", SHARED[self.kind]["patches"][0])
        shared |= {**self.attack, "patch": side if self.kind == "dual_action" else (1, side, side)}
        batch = data(self.kind, "test")
        spread = torch.linspace(0, len(batch) - 1, min(samples, len(batch))).long().tolist()
        chosen = batch[spread]
        return flips(attack(victim(self.kind, victim_name, device), chosen, policy=parse_policy(policy), **shared))


def rows() -> Iterator[tuple[Row, str]]:
    """Every attack and its victim."""
    for kind, main in MAIN.items():
        everywhere = [Row(kind, kind, main, seed) for seed in SEEDS]
        everywhere += [
            Row(kind, "auto", attack={} if kind == "dual_action" else {"until": "budget"}),
            Row(kind, "square"),
            Row(kind, "random"),
        ]
        if kind == "dual_action":
            sweeps = {
                "full sweep": "sweep='full', add=16, remove=8",
                "one filter": "sweep='one_filter', add=8, remove=4",
            }
            everywhere += [Row(kind, name, main, 0, options) for name, options in sweeps.items()]
            everywhere += [Row(kind, "no removal in the attack", main, 0, "restore=False")]
        else:
            everywhere += [Row(kind, "no reverse removal", main, 0, attack={"cleanup": False})]
        yield from ((row, name) for name in (*UNSEEN[kind], *SEEN[kind]) for row in everywhere)
        for variant in VARIANTS:
            if variant.kind == kind:
                side = {"patch": variant.options["patches"][0]} if "patches" in variant.options else {}
                victims = (OWN[kind],) if variant.own else (SEEN[kind][0], UNSEEN[kind][0])
                yield from ((Row(kind, variant.name, variant, attack=side), name) for name in victims)
