"""What a hardening is in the middle of, as files: the same call goes on where it was, and ends as if never stopped."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.hardening.config import HardenConfig
from rlab.hardening.sources import Pool
from rlab.hardening.weights import Weights
from rlab.runs import files
from rlab.runs.attack import fingerprint

CHECKPOINT, POOL = "checkpoint.pt", "found.safetensors"


@dataclass(frozen=True)
class Epoch:
    """What one pass over the data brought; accuracies are of what would be kept of it, on validation data."""

    number: int  # from 1; 0 is the original
    loss: float
    clean: float
    robust: float  # right on the untouched input and under the attack
    share: float  # of the way from the original weights
    found: int  # harder samples the model got wrong as they were made
    rows: int  # that reached the model so far, attacks, training and validation together

    def __len__(self) -> int:
        return 1

    def note(self) -> str:
        return f"clean {self.clean:.1%}, under attack {self.robust:.1%}, loss {self.loss:.3g}"


@dataclass
class Progressed:
    """All that changes from epoch to epoch."""

    model: Weights
    average: Weights
    best: Weights
    optimizer: dict[str, Any]
    found: Tensor  # (k,) samples found so far by class
    last: Tensor  # (k,) in the last epoch or round
    history: list[Epoch] = field(default_factory=list)  # finished epochs; the first is the original
    stopped: str = ""
    rows: int = 0  # that reached the model so far

    @property
    def epochs(self) -> int:
        return len(self.history) - 1

    @property
    def best_epoch(self) -> Epoch:
        return max(self.history, key=lambda one: (one.robust, one.number))


class Checkpoint:
    """The files of one hardening in a folder; nothing is kept where there is none."""

    def __init__(self, folder: Path | None, config: HardenConfig, batch: Batch, weights: Weights, maker: str) -> None:
        self.folder = folder
        asked = config.model_dump(mode="json") | {"model": digest(weights), "maker": maker}
        self.mark = fingerprint(asked, batch)

    def load(self, device: torch.device) -> Progressed | None:
        if self.folder is None or not (self.folder / CHECKPOINT).exists():
            return None
        held = torch.load(self.folder / CHECKPOINT, weights_only=True, map_location=device)
        if held.pop("mark") != self.mark:
            raise InputError(
                f"{self.folder} holds a hardening of another model, data or configuration: name another folder"
            )
        history = [Epoch(**one) for one in json.loads(held.pop("history"))]
        return Progressed(**held | {"found": held["found"].cpu(), "last": held["last"].cpu(), "history": history})

    def save(self, state: Progressed) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        kept = {name: value for name, value in vars(state).items() if name != "history"}
        history = json.dumps([asdict(one) for one in state.history])
        torch.save(kept | {"history": history, "mark": self.mark}, content)
        files.write_atomically(self.folder / CHECKPOINT, content.getvalue())

    def save_pool(self, pool: Pool) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            files.write_arrays(self.folder / POOL, {"rows": pool.rows, "x": pool.x}, self.mark)

    def load_pool(self) -> Pool:
        assert self.folder is not None
        arrays, _ = files.read_arrays(self.folder / POOL)
        return Pool(arrays["rows"], arrays["x"])


def digest(weights: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, value in weights.items():
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
