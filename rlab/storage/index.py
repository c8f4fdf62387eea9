"""Where a run stores the inputs of its samples. It is read without torch, which the list of `rlab serve` does not need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from rlab.errors import FolderError, InputError
from rlab.storage.stored import stored

ASSIGNMENT, ORIGINAL, PERTURBED = "assignment", "original", "perturbed"  # the arrays of an attack
KEPT, INDEX = "kept", "index"  # which samples have stored inputs, and where those are


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any failure to read a file into a FolderError."""
    try:
        yield
    except (OSError, pa.ArrowException, SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise FolderError(
            f"cannot read {path} ({' '.join(str(error).split())}): if rlab wrote it, delete it and run the same command again"
        ) from error


@dataclass(frozen=True)
class Index:
    """Where a run stores its inputs: `shards` lists files and the number of samples in each."""

    shards: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]  # (c, *size) of a sample
    places: NDArray[np.int64] | None = None  # (n,) each position among the stored ones, -1 if not stored; None: all are

    def at(self, place: int) -> int | None:
        """Return a sample's position among the stored ones, or None."""
        if self.places is None:
            return place
        stored = int(self.places[place])
        return None if stored < 0 else stored


def read_index(path: Path) -> Index:
    """Read where a run's inputs are; a file of `AttackResult.save` holds them itself and is the only shard."""
    with readable(path), safe_open(stored(path), framework="np") as file:
        names, samples = file.keys(), file.get_slice(ASSIGNMENT).get_shape()[0]
        kept = file.get_tensor(KEPT).astype(bool) if KEPT in names else np.ones(samples, dtype=bool)
        if INDEX in names:
            about = json.loads(file.get_tensor(INDEX).tobytes())
            shards = tuple((str(name), int(count)) for name, count in about["shards"])
            shape = tuple(map(int, about["shape"]))
        else:
            (count, *shape), other = (file.get_slice(name).get_shape() for name in (ORIGINAL, PERTURBED))
            if other != [count, *shape]:
                raise FolderError(f"{path} is damaged or was edited: original and perturbed inputs differ in shape")
            shards = ((path.name, count),)
        if len(kept) != samples or sum(count for _, count in shards) != int(kept.sum()):
            raise FolderError(f"{path} is damaged or was edited: its inputs belong to other samples")
        places = None if kept.all() else np.where(kept, kept.cumsum() - 1, -1)
        return Index(shards, tuple(shape), places)
