"""The inputs of a result before and after the attack: in memory, or in the files of a run and read when they are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rlab.errors import InputError
from rlab.runs.files import ARRAYS, ORIGINAL, PERTURBED, read_index
from rlab.runs.ledger import check_shard, reading
from rlab.runs.names import inside

Pair = tuple[Tensor, Tensor]  # original and perturbed, (n, c, *size) each


class Inputs(ABC):
    """Original and perturbed inputs of n samples."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(n, c, *size)."""

    @abstractmethod
    def read(self, rows: Sequence[int]) -> Pair:
        """Those of the samples `rows`."""

    @abstractmethod
    def where(self, rows: Sequence[int]) -> Inputs:
        """The samples `rows`; nothing is read."""

    def all(self) -> Pair:
        return self.read(range(self.shape[0]))


@dataclass(frozen=True)
class HeldInputs(Inputs):
    """In memory."""

    original: Tensor
    perturbed: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.original.shape)

    def read(self, rows: Sequence[int]) -> Pair:
        return self.original[list(rows)], self.perturbed[list(rows)]

    def where(self, rows: Sequence[int]) -> Inputs:
        return HeldInputs(*self.read(rows))

    def all(self) -> Pair:
        return self.original, self.perturbed


@dataclass(frozen=True)
class StoredInputs(Inputs):
    """In a run folder: in one file, or in shards, each checked against the ledger when it is first opened."""

    folder: Path
    shards: tuple[tuple[str, int], ...]  # file and samples of each, in the order of the run
    sample_shape: tuple[int, ...]
    rows: Sequence[int]  # places in the run
    checked: set[str] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, folder: Path) -> StoredInputs:
        with reading(folder):
            index = read_index(folder / ARRAYS)
        return cls(folder, index.shards, index.shape, range(index.samples))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.sample_shape

    def where(self, rows: Sequence[int]) -> Inputs:
        return StoredInputs(self.folder, self.shards, self.sample_shape, [self.rows[i] for i in rows], self.checked)

    def read(self, rows: Sequence[int]) -> Pair:
        places = [self.rows[i] for i in rows]
        pair = tuple(torch.empty(len(rows), *self.sample_shape) for _ in range(2))
        with reading(self.folder):
            for name, at, inner in self._runs(places):
                for out, part in zip(pair, self._part(name, inner), strict=True):
                    out[at : at + len(part)] = part
        return pair[0], pair[1]

    def _runs(self, places: Sequence[int]) -> Iterator[tuple[str, int, slice]]:
        """Places that lie behind each other in one shard: its file, where they go, and where they lie in it."""
        ends = list(accumulate(count for _, count in self.shards))
        at = 0
        while at < len(places):
            shard = bisect_right(ends, places[at])
            first = ends[shard] - self.shards[shard][1]
            end = at + 1
            while end < len(places) and places[end] == places[end - 1] + 1 and places[end] < ends[shard]:
                end += 1
            yield self.shards[shard][0], at, slice(places[at] - first, places[at] - first + end - at)
            at = end

    def _part(self, name: str, rows: slice) -> Pair:
        path = inside(self.folder, name)
        if name not in self.checked:
            check_shard(self.folder, path)
            self.checked.add(name)
        try:
            with safe_open(path, framework="pt") as file:
                return file.get_slice(ORIGINAL)[rows], file.get_slice(PERTURBED)[rows]
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read {path}: {error}") from error
