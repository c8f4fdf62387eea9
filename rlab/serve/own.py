"""Attack or explain an uploaded file: the server starts `python -m rlab.serve.own` and writes the job to its standard input.

The size and range of the input follow the data in the model's configuration. The file has no label, so the model's prediction
counts as correct.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.data.arrays import X_NAMES, channels_first, find_array
from rlab.data.batch import Batch
from rlab.data.clips import VIDEOS
from rlab.data.csv_signals import read_numbers
from rlab.data.decode import BadClip, read_clip
from rlab.data.eight_bit import EightBit, to_float
from rlab.data.images import IMAGES, read_images
from rlab.data.labels import is_number, read_cells
from rlab.data.numpy_files import Array, npz_names, read_npy, read_npz
from rlab.errors import DataError, InputError, MissingExtra, VictimError
from rlab.explanation.options import ExplainJob, ExplainOptions
from rlab.predictions.targets import own_targets
from rlab.progress import bar
from rlab.redact import redact
from rlab.runs.attack import run_attack
from rlab.runs.options import RunOptions
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.resolve import load_model


def read_own(path: Path, name: str, like: Batch) -> Batch:
    """Load one sample in the form of the model's data; its label is a placeholder."""
    x = _values(path, like)
    if x.shape[1:] != like.x.shape[1:]:
        expected, actual = (" × ".join(map(str, shape)) for shape in (like.x.shape[1:], x.shape[1:]))
        raise DataError(f"expected one sample of {expected} values, like the data of the model, got {actual}")
    rounded = like.eight_bit and torch.equal(EightBit(like.bounds)(x), x)
    return replace(like[:1], x=x[:1], ids=(name,), masks=None, r_peaks=None, eight_bit=rounded)


def _values(path: Path, like: Batch) -> Tensor:
    """(1, c, *size)."""
    ending, channels = path.suffix.lower(), like.x.shape[1]
    expected = {"image": IMAGES, "video": VIDEOS, "signal": ()}[like.kind]
    if ending in (*IMAGES, *VIDEOS) and ending not in expected:
        raise DataError(f"the model takes {like.kind} samples, but the file ends in {ending}: choose another one")
    if ending in IMAGES:
        if channels not in (1, 3):
            raise DataError(f"the model takes {channels} channels, which no image file has: send an .npz file")
        return read_images([path], [path.name], (like.size[0], like.size[1]), channels, like.bounds)  # type: ignore[arg-type]
    if ending in VIDEOS:
        try:
            return to_float(read_clip(path, like.size[0], (like.size[1], like.size[2]))[None], like.bounds)
        except BadClip as error:
            raise DataError(f"cannot read the clip: it {error}") from error
    return to_float(_array(path, like), like.bounds)


def _array(path: Path, like: Batch) -> Array:
    """Read .npy, .npz, or a table of numbers with one row, one column, or one column per channel."""
    if path.suffix.lower() in (".npy", ".npz"):
        x = read_npy(path) if path.suffix.lower() == ".npy" else _first(path)
        return x[None] if x.shape == like.x.shape[1:] else channels_first(x[None] if x.ndim == 1 else x, like.kind)
    rows = read_cells(path)
    if len(rows) > 1 and not all(map(is_number, rows[0])):
        rows = rows[1:]
    x = read_numbers(rows, range(len(rows[0])), path.name)
    return x.T[None] if x.shape[1] == like.x.shape[1] or x.shape[1] == 1 else x[:1, None] if len(x) == 1 else x[None]


def _first(path: Path) -> Array:
    names = npz_names(path)
    if not names:
        raise DataError("expected an array named x in the .npz file, got none")
    name = find_array(names, X_NAMES) or names[0]
    return read_npz(path, (name,))[name]


def predicted(victim: Victim, batch: Batch) -> Batch:
    scores = victim(batch.x.to(victim.device), "search").cpu()
    if victim.prediction != "classes":
        return replace(batch, y=own_targets(victim.prediction, scores, batch.size), target=victim.prediction)
    y = (scores >= 0.5).long() if victim.multilabel else scores.argmax(1)
    return replace(batch, y=y)


def examine(spec: Mapping[str, Any], folder: Path) -> None:
    options = check(RunOptions if spec["do"] == "attack" else ExplainOptions, spec["config"])
    like = options.model_copy(update={"data": options.data.model_copy(update={"limit": 1})}).data.load()
    batch = read_own(Path(spec["file"]), spec["name"], like)
    victim = load_model(options.model, batch.bounds)
    if isinstance(options, ExplainOptions):
        ExplainJob(options, victim, batch, options.methods()[:1], folder, pictures=1).explain()
        return
    batch = predicted(victim, batch)
    filled, _ = options.filled(batch)
    asked = {**filled.plain(), "data": {"path": spec["name"]}}
    with bar(1) as progress:
        run_attack(filled, victim, batch, folder, asked, progress)


def main() -> None:
    spec: dict[str, Any] = {}
    try:
        spec = json.loads(sys.stdin.read() or "{}")  # empty if the server ended first
        if spec:
            examine(spec, Path(spec["out"]))
    except (InputError, VictimError, MissingExtra, OSError, MemoryError) as error:
        text = str(redact(f"error: {error}"))
        for kept in (spec["file"], Path(spec["file"]).name) if spec else ():  # the server's own name of the file
            text = text.replace(kept, spec["name"])
        sys.stderr.write(text + "\n")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
