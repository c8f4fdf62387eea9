"""The inputs of a result before and after the attack: in memory, or in the files of a run and read when they are asked for.

What a run did not keep is made again from the data: an input is the palette applied under the sample's seed, put together as its
assignment says, to the bit.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.data.batch import Samples
from rlab.errors import InputError
from rlab.filters.palette import Palette
from rlab.storage.config import read_config
from rlab.storage.files import ORIGINAL, PERTURBED, Index
from rlab.storage.ledger import check_shard, reading
from rlab.storage.names import CONFIG, inside

Keep = Literal["everything", "flips", "assignments"]
Pair = tuple[Tensor, Tensor]  # original and perturbed, (n, c, *size) each


class Inputs(ABC):
    """Original and perturbed inputs of n samples."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """(n, c, *size)."""

    @abstractmethod
    def has(self, row: int) -> bool:
        """Whether those of a sample can be read."""

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

    def has(self, row: int) -> bool:
        return True

    def read(self, rows: Sequence[int]) -> Pair:
        return self.original[list(rows)], self.perturbed[list(rows)]

    def where(self, rows: Sequence[int]) -> Inputs:
        return HeldInputs(*self.read(rows))

    def all(self) -> Pair:
        return self.original, self.perturbed


def rendered(
    palette: Palette, grid: PatchGrid, x: Tensor, bounds: tuple[float, float], seeds: Tensor, assignment: Tensor
) -> Tensor:
    """Inputs (n, c, *size) as the assignments (n, p) distort them; on the processor, whose bits are those that count."""
    one = [
        render(palette.bank(x[i : i + 1], bounds, [int(seeds[i])]), assignment[i : i + 1].long(), grid)
        for i in range(len(x))
    ]  # one after the other: a bank is many inputs large
    return torch.cat(one) if one else x.clone()


def mark(x: Tensor) -> str:
    """A short digest of one input."""
    return hashlib.sha256(x.contiguous().numpy().tobytes()).hexdigest()[:16]


@dataclass(frozen=True)
class Remake:
    """The data of a run, and all that makes its inputs of them."""

    data: Samples
    palette: Palette
    grid: PatchGrid
    ids: tuple[str, ...]
    seeds: Tensor  # (n,)
    assignment: Tensor  # (n, p)
    marks: tuple[str, ...]  # of the flipped inputs, "" of others

    def __call__(self, places: Sequence[int]) -> Pair:
        rows = {name: row for row, name in enumerate(self.data.ids)}
        try:
            batch = self.data[[rows[self.ids[place]] for place in places]]
        except KeyError as error:
            raise InputError(f"the data have no sample {error}: name those of the run") from None
        if len(batch) < len(places):
            raise InputError(f"{batch.left_out[0][0]!r} cannot be read any more ({batch.left_out[0][1]})")
        at = list(places)
        x = rendered(self.palette, self.grid, batch.x, batch.bounds, self.seeds[at], self.assignment[at])
        for place, one in zip(places, x, strict=True):
            if self.marks[place] not in ("", mark(one)):
                raise InputError(
                    f"{self.ids[place]!r} is not to the bit what the run found: the data or the filters are others by now"
                )
        return batch.x, x


def palette_of(folder: Path, data: Samples, names: tuple[str, ...]) -> Palette:
    """That of the run's configuration, of filters that are known here: nothing that a folder names is imported."""
    specs = [str(spec) for spec in read_config(folder / CONFIG).get("palette") or ()]
    if any(":" in spec for spec in specs):
        raise InputError(
            "the palette names functions, which are not called because a folder names them: keep everything"
        )
    palette = Palette.of(specs, data.rank, data.shape[0], data.rate, data.unit)
    if palette.names != names:
        raise InputError(f"the palette of {folder / CONFIG} is not that of the run: it was edited")
    return palette


@dataclass(frozen=True)
class StoredInputs(Inputs):
    """In a run folder: in one file, or in shards, each checked against the ledger when it is first opened."""

    folder: Path
    index: Index
    rows: Sequence[int]  # places in the run
    remake: Remake | None = None
    checked: set[str] = field(default_factory=set, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.index.shape

    def has(self, row: int) -> bool:
        return self.remake is not None or self.index.at(self.rows[row]) is not None

    def where(self, rows: Sequence[int]) -> Inputs:
        return StoredInputs(self.folder, self.index, [self.rows[i] for i in rows], self.remake, self.checked)

    def read(self, rows: Sequence[int]) -> Pair:
        places = [self.rows[i] for i in rows]
        stored = [self.index.at(place) for place in places]
        pair = tuple(torch.empty(len(rows), *self.index.shape) for _ in range(2))
        with reading(self.folder):
            for name, at, inner in self._runs(stored):
                for out, part in zip(pair, self._part(name, inner), strict=True):
                    out[at : at + len(part)] = part
        if missing := [i for i, place in enumerate(stored) if place is None]:
            if self.remake is None:
                raise InputError(
                    f"the inputs of {len(missing)} samples were not kept in {self.folder}: name the data of the run, with "
                    "--data or as AttackResult.load(folder, data)"
                )
            for out, part in zip(pair, self.remake([places[i] for i in missing]), strict=True):
                out[missing] = part
        return pair[0], pair[1]

    def _runs(self, stored: Sequence[int | None]) -> Iterator[tuple[str, int, slice]]:
        """Those that lie behind each other in one shard: its file, where they go, and where they lie in it."""
        ends = list(accumulate(count for _, count in self.index.shards))
        at = 0
        while at < len(stored):
            place, end = stored[at], at + 1
            if place is not None:
                shard = bisect_right(ends, place)
                while end < len(stored) and stored[end] == place + end - at and place + end - at < ends[shard]:
                    end += 1
                first = place - ends[shard] + self.index.shards[shard][1]
                yield self.index.shards[shard][0], at, slice(first, first + end - at)
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
