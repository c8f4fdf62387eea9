"""The log of a training: lines of JSON, and TensorBoard scalars on request."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlab.errors import MissingExtra, optional
from rlab.storage.files import write_text

Line = Mapping[str, float]  # figures by name


class MetricLogger:
    """Writes a file of `lines`; a resumed training passes those that its state holds, so that none is lost or written twice."""

    def __init__(self, path: Path, lines: Sequence[Line] = (), tensorboard: bool = False) -> None:
        self.path, self.lines, self.writer = path, tuple(lines), None
        if tensorboard:
            module = optional("torch.utils.tensorboard", MissingExtra("tensorboard", "tensorboard"))
            self.writer = module.SummaryWriter(str(path.parent / "tensorboard"))

    def note(self, figures: Line, seconds: float) -> None:
        """One more line, and one point of each curve at `seconds` of training."""
        self.lines = (*self.lines, figures)
        write_text(self.path, "".join(json.dumps(dict(line)) + "\n" for line in self.lines))
        if self.writer is not None:
            for name, value in figures.items():
                if math.isfinite(value):
                    self.writer.add_scalar(name, value, round(seconds))
            self.writer.flush()
