"""CIFAR-10 in its binary version: records of one label byte and 3,072 pixel bytes (https://www.cs.toronto.edu/~kriz/cifar.html)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rlab.data.arrays import Bounds, to_float
from rlab.data.batch import Batch
from rlab.data.take import Take, check_room
from rlab.errors import InputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
FILES = {"train": "data_batch_*.bin", "test": "test_batch.bin"}


def cifar10(
    path: str | Path, *, split: str | None = None, bounds: Bounds = (0.0, 1.0), take: Take | None = None
) -> Batch:
    """Images (b, 3, 32, 32) from one .bin file or from a folder of them: `split` train or test, both where not said."""
    files = _files(Path(path), split)
    records = np.concatenate([read_records(file) for file in files])
    ids = [f"{file.stem}:{i:05d}" for file in files for i in range(file.stat().st_size // RECORD)]
    rows = (take or Take()).order(len(records))
    check_room(len(rows), SHAPE)
    pixels = records[rows, 1:].reshape(-1, *SHAPE)
    y = torch.from_numpy(records[rows, 0].astype(np.int64))
    return Batch(x=to_float(pixels, bounds), y=y, ids=tuple(ids[i] for i in rows), bounds=bounds, classes=CLASSES)


def read_records(path: Path) -> NDArray[np.uint8]:
    """One .bin file -> (n, 3073)."""
    try:
        flat = np.fromfile(path, np.uint8)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r} ({error}): check the file") from error
    if not len(flat) or len(flat) % RECORD:
        raise InputError(
            f"expected records of {RECORD} bytes in {path.name!r}, got {len(flat)} bytes: "
            f"the file is incomplete or not the binary version of CIFAR-10"
        )
    records = flat.reshape(-1, RECORD)
    if records[:, 0].max() >= len(CLASSES):
        raise InputError(
            f"expected labels in 0..9 in {path.name!r}, got {records[:, 0].max()}: "
            f"the file is not the binary version of CIFAR-10"
        )
    return records


def is_cifar(path: Path) -> bool:
    """Whether this is a CIFAR-10 binary file, or a folder that holds one."""
    return path.suffix == ".bin" or any(any(path.glob(pattern)) for pattern in FILES.values())


def is_pickled_cifar(path: Path) -> bool:
    """Whether this is CIFAR's Python version: pickled files with the binary version's names and no ending."""
    names = ("data_batch_1", "test_batch")
    return path.name in (*names, *(f"data_batch_{i}" for i in range(2, 6))) or any((path / n).is_file() for n in names)


def _files(path: Path, split: str | None) -> list[Path]:
    if path.is_file():
        if split is not None:
            raise InputError(f"{str(path)!r} is one file: split is for a folder of them")
        return [path]
    if split not in (None, *FILES):
        raise InputError(f"expected split train or test, got {split!r}")
    patterns = FILES.values() if split is None else [FILES[split]]
    files = [file for pattern in patterns for file in sorted(path.glob(pattern))]
    if not files:
        raise InputError(f"the folder {str(path)!r} holds no {' or '.join(patterns)}: get CIFAR-10's binary version")
    return files
