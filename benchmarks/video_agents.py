"""Agents for the benchmark on clips: their training data from a pack, and training them and what they are compared with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import common
from rlab.data.batch import Batch
from rlab.errors import MissingExtra
from rlab.victims.zoo.clips import CLIP_MEAN, CLIP_STD

PALETTE = ("gaussian_noise@0.2", "gaussian_blur@2.0", "dead_pixel@1.0")
PATCH = 8
CONFIG = common.HERE.parent / "agents" / "clips.yaml"
# What is trained, and how it differs from agents/clips.yaml.
TRAINED: dict[str, dict[str, Any]] = {
    "pair": {},
    "one": {"temporal": False},
    "coarse": {"levels": 1},
    "plain": {"learner": {"objectness": 0.0, "motion": 0.0}},
}


def packed_clips(path: Path, part: str) -> Batch:
    """The clips of a pack of `benchmarks.train_clips`, as a loader would give them; 'train' or 'test'."""
    from benchmarks.train_clips import plain, unpack

    clips = unpack(path, part)
    mean, std = (torch.tensor(values).view(3, 1, 1, 1) for values in (CLIP_MEAN, CLIP_STD))
    x = torch.cat([(plain(rows) * std + mean).clamp(0, 1) for rows in clips.x.split(32)])
    ids = tuple(f"{part}-{i:04d}" for i in range(len(x)))
    return Batch((x * 255).round() / 255, clips.y, ids, classes=clips.classes)


def write_arrays(path: Path) -> dict[str, float]:
    """A pack as arrays that `rlab train` reads, and the training clips' objectness and motion where OpenCV is."""
    told: dict[str, float] = {}
    for part in ("train", "test"):
        batch = packed_clips(path, part)
        write_clips(batch, path.with_name(f"clips_{part}.npz"))
        told[part] = len(batch)
        if part == "train":
            told |= _saliency(batch, path.with_name("clips_saliency.safetensors"))
    return told


def write_clips(batch: Batch, path: Path) -> int:
    """Clips as arrays of bytes that `rlab.load` reads; how many."""
    x = (batch.x * 255).round().to(torch.uint8).numpy()
    names = {"ids": np.array(batch.ids), "classes": np.array(batch.classes)}
    np.savez_compressed(path, x=x, y=batch.y.numpy(), **names)  # type: ignore[arg-type]
    return len(batch)


def _saliency(batch: Batch, path: Path) -> dict[str, float]:
    from rlab.papers.video.saliency import kept_maps

    began = time.monotonic()
    try:
        maps = kept_maps(batch.x, batch.ids, path)
    except MissingExtra as why:
        print(f"without {path.name}: {why}")
        return {}
    return {"saliency": len(maps), "saliency_seconds": time.monotonic() - began}


def train_all(folder: Path, minutes: float, device: str | None, mobilenet: str | None, only: Sequence[str]) -> None:
    """The agents of agents/clips.yaml and its variants, each in a folder of its own, with the same prior."""
    from rlab.papers.video.train import PairOptions, train
    from rlab.runs.config import check, read_config
    from rlab.training.trainer import PRIOR

    variants = TRAINED | ({"mobilenet": {"encoder": "mobilenet", "mobilenet": mobilenet}} if mobilenet else {})
    for name, change in variants.items():
        if only and name not in only:
            continue
        values = read_config(CONFIG)
        values |= {key: value for key, value in change.items() if key != "learner"}
        values["learner"] = values["learner"] | change.get("learner", {})
        values["minutes"] = minutes
        if name != "pair" and (prior := folder / "pair" / PRIOR).exists():
            values |= {"start": str(prior), "prior_minutes": 0}
        if device is not None:
            values["device"] = device
            values["models"] = [model | {"device": device} for model in values["models"]]
        options = check(PairOptions, values)
        train(*options.load(), options, folder / name, partial(print, name, flush=True))
