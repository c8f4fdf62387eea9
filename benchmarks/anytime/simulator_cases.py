"""What attacks with simulators are measured on: victims, the rows of each, and the networks or inputs that simulators come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.anytime.cases import Load, beats, cifar, photos
from benchmarks.attacks import NATURAL, SURROGATES
from benchmarks.beats import balanced
from benchmarks.beats import beats as all_beats
from benchmarks.data import WEIGHTS, cifar_test, real, spread_clips
from benchmarks.ecg.cases import PALETTE
from benchmarks.ecg.leads import PALETTE as LEAD_PALETTE
from benchmarks.ecg.leads import PATCH as LEAD_PATCH
from benchmarks.victims import CLIP_NETS, cifar_victim, clip_victim, photo_victim
from benchmarks.victims.twelve_leads import CLASSES, PUBLIC, twelve_lead_victim
from benchmarks.video.cases import PALETTE as CLIP_PALETTE
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.victims.base import Victim

GROUP, SEED, QUERIES = "simulators", 0, 50
LEARNED = {"images": 3500, "beats": 3000}  # answers that students learn from


@dataclass(frozen=True)
class SimulatorCase:
    """A victim, the rows to measure on it, and what its simulators are made of; sizes were fixed before any result was seen."""

    name: str
    load: Load
    samples: int
    rows: tuple[str, ...]
    palette: tuple[str, ...]
    patch: int | tuple[int, ...]
    lessons: str = ""  # what students learn from: images or beats
    queries: int = QUERIES

    def file(self, row: str) -> str:
        return f"{self.name}-{GROUP}-{row}"

    def settings(self, row: str) -> dict[str, Any]:
        shared = {
            "samples": self.samples,
            "palette": self.palette,
            "patch": self.patch,
            "budget": self.queries,
            "seed": SEED,
        }
        return {"case": self.name, "row": row, **shared}


def clips(name: str) -> Load:
    return lambda samples, device: (clip_victim(name, device), spread_clips(samples, _packed_clips()))


def _packed_clips() -> Path | None:
    """The test clips as arrays, on a machine without PyAV (`benchmarks.video --arrays`)."""
    packed = WEIGHTS.parent.parent / "data" / "clips.npz"
    return packed if packed.exists() else None


def twelve_leads(name: str) -> Load:
    """The first records of fold 9 of PTB-XL, all labels of which the network gets right."""

    def loaded(samples: int, device: str) -> tuple[Victim, Batch]:
        victim, batch = twelve_lead_victim(name, device), load(real("ptbxl"), folds="9", classes=CLASSES)
        right = ((victim(batch.x.to(victim.device)).cpu() > 0) == (batch.y > 0)).all(1)
        return victim, batch[right.nonzero()[:samples, 0].tolist()]

    return loaded


_FULL = ("belief", "auto", "rule", "imagine", "students")
CASES = (
    SimulatorCase("vgg", cifar("vgg"), 256, (*_FULL, "no-plan", "one"), NATURAL, 4, "images"),
    SimulatorCase("wide_resnet", cifar("wide_resnet"), 256, _FULL, NATURAL, 4, "images"),
    SimulatorCase("vit", cifar("vit"), 256, _FULL, NATURAL, 4, "images"),
    SimulatorCase("cnn_a_mix", cifar("cnn_a_mix"), 256, ("belief", "auto", "rule", "imagine"), NATURAL, 4),
    SimulatorCase("beats_cnn", beats("cnn"), 150, ("belief", "auto", "students"), PALETTE, 10, "beats"),
    SimulatorCase("beats_transformer", beats("transformer"), 150, ("belief", "auto", "students"), PALETTE, 10, "beats"),
    SimulatorCase("lite1", photos(1), 12, ("belief", "rule", "imagine"), NATURAL, 14, queries=20),
    SimulatorCase("cnn7", twelve_leads("cnn7"), 24, ("belief", "imagine"), LEAD_PALETTE, LEAD_PATCH),
    SimulatorCase("cnn3", twelve_leads("cnn3"), 24, ("belief", "imagine"), LEAD_PALETTE, LEAD_PATCH),
    *(SimulatorCase(name, clips(name), 24, ("auto", "rule", "imagine"), CLIP_PALETTE, (1, 8, 8)) for name in CLIP_NETS),
)


def surrogates(case: SimulatorCase, row: str, device: str) -> tuple[Victim, ...]:
    if case.name in CLIP_NETS:
        return tuple(clip_victim(name, device) for name in CLIP_NETS if name != case.name)
    if case.name in PUBLIC:
        return tuple(twelve_lead_victim(name, device) for name in PUBLIC if name != case.name)
    if case.name == "lite1":
        return photo_victim(device, 0), photo_victim(device, 2)
    names = SURROGATES[:1] if row == "one" else SURROGATES
    return tuple(cifar_victim(name, device) for name in names)


def lessons(case: SimulatorCase) -> Batch:
    """Inputs, none of them attacked, whose clean answers students learn from."""
    if case.lessons == "images":
        return cifar_test(5000)[-LEARNED["images"] :]
    batch = all_beats("train")
    return batch[balanced(batch.y, torch.ones(len(batch), dtype=torch.bool), LEARNED["beats"])]
