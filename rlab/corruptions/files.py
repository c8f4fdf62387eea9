"""Files of CIFAR-10-C as the corrupted inputs of `rlab corrupt`, instead of inputs that it corrupts itself."""

from __future__ import annotations

import os
from pathlib import Path

from rlab.corruptions.kinds import EXTRA, KINDS, LEVELS
from rlab.data.images import CIFAR10C, kinds_in
from rlab.data.load import DataOptions
from rlab.runs.inputs import Data
from rlab.storage.config import check


def files_of(data: Data, limit: int | None) -> DataOptions | None:
    """The files of CIFAR-10-C, if the data are such; None for data to corrupt."""
    if isinstance(data, str | os.PathLike):
        data = check(DataOptions, {"path": os.fspath(data), "limit": limit}, f"the data {str(data)!r}")
    return data if isinstance(data, DataOptions) and data.path.startswith(CIFAR10C) else None


def stored(files: DataOptions, extra: bool) -> dict[str, tuple[str, ...]]:
    """By kind, the names of the data at levels 1 to 5; the papers' kinds come first, in their order."""
    order = (*KINDS, *EXTRA)
    kinds = sorted(
        kinds_in(Path(files.path.removeprefix(CIFAR10C))),
        key=lambda kind: order.index(kind) if kind in order else len(order),
    )
    chosen = [kind for kind in kinds if extra or kind not in EXTRA]
    return {kind: tuple(f"{files.path}/{kind}@{level}" for level in LEVELS) for kind in chosen}
