"""One valid input of every kind, so small that a command takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import wfdb
import yaml
from PIL import Image

from rlab.papers.two_agents import AgentPair, TwoAgentsShape
from rlab.priors.file import save_prior, write_weights
from rlab.priors.trained import DirectionPrior
from tests.benchmarking.cases import Case
from tests.data.clip_files import encode
from tests.learning.toys import small_students

MODEL = """
import numpy as np

def bright():
    return lambda x: np.stack([x.reshape(len(x), -1).mean(1), np.full(len(x), 0.5)], 1)
"""
ATTACK = "--budget 5 --no-page --palette dead_pixel --policy random --out out"
LEARNED = "attack my_model:bright x.npz --budget 5 --palette dead_pixel --policy belief"
NO_DATA = {"path": "nowhere.npz"}  # stops the command once all options are valid
RUN = {
    **{"model": "my_model:bright", "data": {"path": "x.npz", "limit": 2, "bounds": [0.0, 1.0], "kind": "image"}},
    **{"palette": ["gaussian_noise@0.3*2", "dead_pixel"], "patch": [4, 4], "goal": "untargeted", "budget": 5},
    **{"policy": "square(share=0.2)", "seed": 3, "chunk": 2, "until": "flip", "l2_penalty": 0.1, "distance": "l2"},
}
AUDIT = RUN | {
    "data": NO_DATA,
    **{"title": "mine", "doctor": False, "explain": False, "benchmark": False},
    "requirements": [{"metric": "success", "at": {"l2": 1.0}, "below": "50%"}, {"metric": "queries", "at_most": 9}],
}
TRAIN = {
    **{"kind": "prior", "models": ["my_model:bright"], "data": NO_DATA, "palettes": [["dead_pixel", "jpeg@30..60"]]},
    **{"patches": [2, [4, 4]], "minutes": 0.1, "prior": {"batch": 8}, "budget": 9, "heads": 1, "seed": 0},
}
BENCHMARK = RUN | {"data": NO_DATA, "ladder": "times:1.5,2", "steps": 4, "lead": 0.05, "format": "png"}


@dataclass(frozen=True)
class Subject:
    """A command `words` that reads `file` and ends with `code` if it is valid; `made` is the format of its values."""

    name: str
    words: str
    file: str
    code: int = 0
    made: str = "bytes"

    @property
    def slow(self) -> bool:
        """Whether the command draws pictures."""
        return self.words.startswith("report")

    def __str__(self) -> str:
        return f"{self.name} ({self.made})"


def _data(name: str, file: str, words: str = "") -> Subject:
    return Subject(name, f"attack my_model:bright {words} {ATTACK}", file)


def _declared(name: str, words: str, file: str, code: int = 0) -> list[Subject]:
    return [Subject(name, words, file, code, made) for made in ("bytes", "yaml")]


SUBJECTS = [
    _data("npz", "x.npz", "x.npz"),
    _data("npy", "x.npy", "x.npy --labels y.csv"),
    _data("labels", "y.csv", "x.npy --labels y.csv"),
    _data("png", "images/a.png", "images"),
    _data("jpeg", "images/b.jpg", "images"),
    _data("tiff", "images/c.tif", "images"),
    _data("table", "images/labels.csv", "images"),
    _data("csv", "signals.csv", "signals.csv"),
    _data("wfdb header", "ecg/100.hea", "ecg"),
    _data("wfdb signal", "ecg/100.dat", "ecg"),
    _data("wfdb beats", "ecg/100.atr", "ecg"),
    _data("mp4", "clips/run/a.mp4", "clips -D classes=names.txt -D frames=2"),
    *_declared("attack config", "attack --config run.yaml --no-page --out out", "run.yaml"),
    Subject("toml", "attack --config run.toml --no-page --out out", "run.toml"),
    *_declared("audit config", "audit audit.yaml --out out", "audit.yaml", 2),
    *_declared("training config", "train train.yaml --out out", "train.yaml", 2),
    *_declared("benchmark config", "benchmark make --config make.yaml --out out", "make.yaml", 2),
    *(
        Subject(name, f"attack my_model:bright {data} --policy {policy} --budget 5 --no-page --out out", file, 0, made)
        for made in ("bytes", "header")
        for name, file, data, policy in (
            ("prior", "prior.safetensors", "x.npz", "prior.safetensors"),
            ("pair", "agent.safetensors", "clips -D classes=names.txt -D frames=8", "agent.safetensors"),
        )
    ),
    *(
        Subject(
            "simulator", f"{LEARNED} --simulator learned --no-page --out out", "learned/simulator.safetensors", 0, made
        )
        for made in ("bytes", "header")
    ),
    *(
        Subject(f"show {file}", "show run --samples 2", f"run/{file}", 0, made)
        for file, made in (
            ("samples.parquet", "bytes"),
            ("samples.parquet", "rows"),
            ("arrays.safetensors", "bytes"),
            ("run.json", "bytes"),
        )
    ),
    Subject("report samples.parquet", "report run --samples 0", "run/samples.parquet", 0, "rows"),
    Subject("report config.yaml", "report run --samples 0", "run/config.yaml"),
    *(
        Subject(f"verify {file}", "benchmark verify bench", f"bench/{file}", 0, made)
        for file, made in (
            ("manifest.json", "bytes"),
            ("manifest.json", "json"),
            ("metadata.parquet", "bytes"),
            ("metadata.parquet", "rows"),
            ("originals/1/00000_0.png", "bytes"),
        )
    ),
]


def make_inputs(folder: Path, command: Callable[..., Any]) -> None:
    """Write all inputs; `command` runs rlab in this folder for files that only rlab writes."""
    rng = np.random.default_rng(0)
    x, y = rng.random((3, 3, 8, 8), np.float32), np.array([0, 1, 0])
    (folder / "my_model.py").write_text(MODEL)
    np.savez_compressed(folder / "x.npz", x=x, y=y, ids=np.array(["a", "b", "c"]), classes=np.array(["dark", "light"]))
    np.save(folder / "x.npy", x)
    (folder / "y.csv").write_text("label\n0\n1\n0\n")
    pixels = (x * 255).astype(np.uint8)
    (folder / "images").mkdir()
    for name, image in zip(("a.png", "b.jpg", "c.tif"), np.moveaxis(pixels, 1, -1), strict=True):
        Image.fromarray(image).save(folder / "images" / name)
    (folder / "images" / "labels.csv").write_text("file,label\na.png,0\nb.jpg,1\nc.tif,1\n")
    rows = [f"{label}," + ",".join(f"{value:.3f}" for value in rng.random(16)) for label in y]
    (folder / "signals.csv").write_text("\n".join(rows) + "\n")
    write_record(folder / "ecg", rng)
    (folder / "clips" / "run").mkdir(parents=True)
    (folder / "names.txt").write_text("run\nwalk\n")
    encode(rng.integers(0, 255, (8, 32, 32, 3), np.uint8), 10, folder / "clips" / "run" / "a.mp4", 23, "ultrafast")
    for name, values in (("run", RUN), ("audit", AUDIT), ("train", TRAIN), ("make", BENCHMARK)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    (folder / "run.toml").write_text(
        'model = "my_model:bright"\nbudget = 5\npolicy = "random"\nuntil = "flip"\n[data]\npath = "x.npz"\nlimit = 2\n'
    )
    torch.manual_seed(0)
    save_prior(DirectionPrior(2, 3, 8, 1, levels=1), folder / "prior.safetensors", {"trained": "never"})
    shape = TwoAgentsShape(width=8)
    weights, arguments = AgentPair(shape).state_dict(), shape.model_dump()
    write_weights(folder / "agent.safetensors", "two_agents", weights, arguments, {"trained": "never"})
    command("attack", "--config", "run.yaml", "--pictures", 0, "--out", "run")
    np.savez(folder / "more.npz", x=rng.random((8, 3, 8, 8), np.float32), y=np.zeros(8, int))
    with small_students(steps=1, width=4):
        command("learn", "my_model:bright", "more.npz", "--queries", 60, "--palette", "dead_pixel", "--out", "learned")
    Case(2, 3).make(folder / "bench", format="png", ladder="flip")


def write_record(folder: Path, rng: np.random.Generator) -> None:
    folder.mkdir()
    steps = rng.integers(-400, 400, (400, 1)) / 200
    form = {"fmt": ["16"], "adc_gain": [200.0], "baseline": [0]}
    wfdb.wrsamp("100", fs=100, units=["mV"], sig_name=["MLII"], p_signal=steps, write_dir=str(folder), **form)
    wfdb.wrann("100", "atr", np.array([100, 250]), symbol=["N", "A"], write_dir=str(folder))
