"""What a model was measured to be, kept beside its weights, so that a stopped comparison measures nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from rlab.data.batch import Batch
from rlab.hardening.checkpoint import digest
from rlab.hardening.config import HardenConfig
from rlab.hardening.measure import Floats, Measured, Trial
from rlab.hardening.weights import Weights
from rlab.runs.attack import fingerprint
from rlab.runs.files import read_arrays, write_arrays

FILE = "measured.safetensors"
_PARTS = ("figures", "curves")


def setting(weights: Weights, trial: Trial, config: HardenConfig, batch: Batch, test: Batch) -> str:
    """All that a measurement depends on, as one line; `weights` are the model's before any hardening."""
    asked = {"model": digest(weights), "trial": repr(trial), "config": config.model_dump(mode="json")}
    return fingerprint(asked | {"trained on": fingerprint({}, batch)}, test)


def measured_once(place: Path | None, said: str, make: Callable[[], Measured]) -> Measured:
    """What stands in `place` under the same setting, or measured now and written there."""
    if place is None:
        return make()
    path = place / FILE
    if path.exists():
        arrays, before = read_arrays(path)
        if before == said:
            parts = {part: _under(part, arrays) for part in _PARTS}
            return Measured(parts["figures"], parts["curves"])
    found = make()
    place.mkdir(parents=True, exist_ok=True)
    named = {f"{part}.{i:02}.{name}": v for part in _PARTS for i, (name, v) in enumerate(getattr(found, part).items())}
    write_arrays(path, {name: torch.from_numpy(value) for name, value in named.items()}, said)
    return found


def _under(part: str, arrays: dict[str, torch.Tensor]) -> dict[str, Floats]:
    """The arrays of a part in the order they were written in: 'figures.00.clean'."""
    names = sorted(name for name in arrays if name.startswith(part + "."))
    return {name.split(".", 2)[2]: arrays[name].numpy() for name in names}
