"""The log of a training: lines of JSON, and TensorBoard scalars on request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from rlab.errors import MissingExtra, optional


class MetricLogger:
    """Appends to a file, so that a resumed training continues its log."""

    def __init__(self, path: Path, tensorboard: bool = False) -> None:
        self.path, self.writer = path, None
        if tensorboard:
            module = optional("torch.utils.tensorboard", MissingExtra("tensorboard", "tensorboard"))
            self.writer = module.SummaryWriter(str(path.parent / "tensorboard"))

    def note(self, figures: Mapping[str, float], seconds: float) -> None:
        """One line, and one point of each curve at `seconds` of training."""
        with self.path.open("a") as file:
            file.write(json.dumps(dict(figures)) + "\n")
        if self.writer is not None:
            for name, value in figures.items():
                if math.isfinite(value):
                    self.writer.add_scalar(name, value, round(seconds))
            self.writer.flush()
