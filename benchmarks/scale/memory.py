"""Memory of a run over many samples, and how soon it starts, resumes and is shown; each in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from benchmarks.processes import measured_alone, peak
from rlab.progress import UnderWay
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.storage.config import check
from rlab.victims.resolve import load_model

FEW, MANY, PHOTOS, SIDE = 1_000, 100_000, 2_000, 224
ATTACKED = 10  # one sample in this number is classified correctly and attacked


class Grey(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1, keepdim=True)


def net() -> nn.Module:
    """A model that costs nothing: linear in coarse grey values."""
    torch.manual_seed(0)
    return nn.Sequential(Grey(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16, 10)).eval()


def write_arrays(path: Path, samples: int) -> None:
    """Write grey noise of 32 x 32 as .npy, and its labels."""
    x = np.lib.format.open_memmap(path, "w+", np.uint8, (samples, 1, 32, 32))
    y, model, draw = np.zeros(samples, np.int64), net(), np.random.default_rng(0)
    for at in range(0, samples, FEW):
        x[at : at + FEW] = draw.integers(0, 256, (FEW, 1, 32, 32), dtype=np.uint8)
        with torch.no_grad():
            right = model(torch.from_numpy(x[at : at + FEW]) / 255).argmax(1).numpy()
        y[at : at + FEW] = np.where(np.arange(FEW) % ATTACKED == 0, right, (right + 1) % 10)
    np.save(path.with_suffix(".labels.npy"), y)


def write_photos(folder: Path, count: int) -> None:
    draw = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(draw.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        place = folder / f"{i % 10}"
        place.mkdir(parents=True, exist_ok=True)
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(place / f"{i:05d}.jpg", quality=85)


def options(data: Path) -> RunOptions:
    """An attack that costs next to nothing."""
    more = {"size": SIDE} if data.is_dir() else {"labels": str(data.with_suffix(".labels.npy"))}
    values = {
        "model": "benchmarks.scale.memory:net", "data": {"path": str(data), **more}, "policy": "random", "budget": 3,
        "palette": ["dead_pixel"], "patch": 8, "chunk": 64 if data.is_dir() else 256, "keep": "flips",
    }  # fmt: skip
    return check(RunOptions, values)


def attack(data: Path, folder: Path, stop: int) -> dict[str, float]:
    """Attack in this process: start time, time of the first sample, peak memory; `stop` ends it after that many samples."""
    began, first, done = time.time(), 0.0, 0
    torch.set_num_threads(1)

    def hear(part: Any) -> None:
        nonlocal first, done
        if isinstance(part, UnderWay):
            first = first or time.time()
        elif not part.recalled:
            done += len(part)
            if stop and done >= stop:
                raise KeyboardInterrupt

    run = options(data)
    batch = run.data.open()
    attack = run.build(batch)
    with suppress(KeyboardInterrupt):
        run_attack(attack, load_model(run.model), batch, folder, run.plain(), hear, keep=run.keep)
    return {"megabytes": peak(), "loading": began, "first": first}


def elsewhere(*words: object) -> dict[str, float]:
    """Measure in a new process; times are seconds since its start."""
    began = time.time()
    measured = measured_alone("benchmarks.scale.memory", *map(str, words), threads=1)
    return measured | {name: measured[name] - began for name in ("loading", "first")}


def memory_rows(quick: bool) -> dict[str, float]:
    """`memory_ratio_100k` and, in a full run, photos and the seconds of a large run."""
    with TemporaryDirectory() as place:
        folder, counts = Path(place), (FEW, MANY)
        for samples in counts:
            write_arrays(folder / f"{samples}.npy", samples)
        with ThreadPoolExecutor() as both:
            runs = [both.submit(elsewhere, folder / f"{n}.npy", folder / f"run-{n}", 0) for n in counts]
        peaks = [run.result()["megabytes"] for run in runs]
        figures = {"memory_ratio_100k": peaks[1] / peaks[0], "memory_mb_1k": peaks[0], "memory_mb_100k": peaks[1]}
        if not quick:
            figures |= _seconds(folder)
            write_photos(folder / "photos", PHOTOS)
            figures["memory_mb_photos"] = elsewhere(folder / "photos", folder / "run-photos", 0)["megabytes"]
    return figures


def _seconds(folder: Path) -> dict[str, float]:
    """Seconds from the start of Python until a run of 100,000 samples starts, resumes at 90%, and is shown."""
    data, run = folder / f"{MANY}.npy", folder / f"run-{MANY}"
    started = elsewhere(data, folder / "begun", 512)
    elsewhere(data, folder / "begun", round(0.9 * MANY))
    resumed = elsewhere(data, folder / "begun", 512)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "rlab", "show", str(run), "--quiet"], check=True)
    shown = {"show_seconds": time.perf_counter() - began, "loading_seconds": started["loading"]}
    return {"start_seconds": started["first"], "resume_seconds": resumed["first"], **shown}


def main() -> None:
    data, folder, stop = sys.argv[1:]
    measured = attack(Path(data), Path(folder), int(stop))
    if not int(stop):
        assert len(AttackResult.load(folder))
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    main()
