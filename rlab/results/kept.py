"""Original and perturbed inputs of a result, in memory or in a run folder, from which they are read on demand.

Inputs that a run did not store are rebuilt from the data to the bit: apply the palette with the sample's seed as the assignment
says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.data.batch import Samples
from rlab.data.eight_bit import EightBit
from rlab.errors import DataError, FolderError
from rlab.filters.clinical import reversal_filters
from rlab.filters.palette import Palette
from rlab.storage.config import read_config
from rlab.storage.digest import digest
from rlab.storage.files import opened_arrays
from rlab.storage.index import ORIGINAL, PERTURBED, Index
from rlab.storage.names import CONFIG, inside
from rlab.storage.run_file import reading
from rlab.storage.steps import check_part

Keep = Literal["everything", "flips", "assignments"]
Pair = tuple[Tensor, Tensor]  # original and perturbed, (n, c, *size) each
LETTERS = 16  # of the digest of one input


@dataclass(frozen=True)
class HeldInputs:
    """Inputs in memory."""

    original: Tensor
    perturbed: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, c, *size)."""
        return tuple(self.original.shape)

    def has(self, row: int) -> bool:
        return True

    def read(self, rows: Sequence[int]) -> Pair:
        return self.original[list(rows)], self.perturbed[list(rows)]

    def where(self, rows: Sequence[int]) -> HeldInputs:
        return HeldInputs(*self.read(rows))

    def all(self) -> Pair:
        return self.original, self.perturbed


def rendered(
    palette: Palette,
    grid: PatchGrid,
    x: Tensor,
    bounds: tuple[float, float],
    seeds: Tensor,
    assignment: Tensor,
    sample: Tensor | None = None,
) -> Tensor:
    """Distort inputs (n, c, *size) by the assignments (m, p), on the CPU, so that the bits are reproducible.

    `sample` (m,), in order, says which input each assignment distorts; by default there is one for each input."""
    each, at = list[Tensor](), 0
    chosen, counts = (torch.arange(len(x)) if sample is None else sample).unique_consecutive(return_counts=True)
    for i, count in zip(chosen.tolist(), counts.tolist(), strict=True):
        bank = palette.bank(x[i : i + 1], bounds, [int(seeds[i])])  # one at a time: it is much larger than an input
        each.append(render(bank.expand(count, *bank.shape[1:]), assignment[at : at + count].long(), grid))
        at += count
    return torch.cat(each) if each else x[:0]


@dataclass(frozen=True)
class Remake:
    """The data of a run and everything needed to rebuild its perturbed inputs."""

    data: Samples
    palette: Palette
    grid: PatchGrid
    ids: tuple[str, ...]
    seeds: Tensor  # (n,)
    assignment: Tensor  # (n, p)
    marks: tuple[str, ...]  # digests of flipped inputs, "" for the others

    def __call__(self, places: Sequence[int]) -> Pair:
        rows = {name: row for row, name in enumerate(self.data.ids)}
        try:
            batch = self.data[[rows[self.ids[place]] for place in places]]
        except KeyError as error:
            raise DataError(f"the data has no sample {error}: pass the data of the run") from None
        if len(batch) < len(places):
            raise DataError(f"{batch.left_out[0][0]!r} can no longer be read ({batch.left_out[0][1]})")
        at = list(places)
        x = rendered(self.palette, self.grid, batch.x, batch.bounds, self.seeds[at], self.assignment[at])
        for place, one in zip(places, x, strict=True):
            if self.marks[place] not in ("", digest(one, length=LETTERS)):
                raise DataError(
                    f"rebuilding {self.ids[place]!r} does not give the input of the run: the data or the filters have changed"
                )
        return batch.x, x


def palette_of(folder: Path, data: Samples, names: tuple[str, ...]) -> Palette:
    """Build the palette of the run's configuration from built-in filters; code that a folder names is never imported."""
    config = read_config(folder / CONFIG)
    specs = [str(spec) for spec in config.get("palette") or ()]
    if any(":" in spec for spec in specs):
        raise FolderError(
            "the run's palette names functions or recordings, which rlab does not open for a stored folder: run with "
            "keep='everything'"
        )
    palette = Palette.of(specs, data.rank, data.shape[0], data.rate, data.unit, reversal_filters(data.leads))
    if palette.names != names:
        raise FolderError(f"the palette in {folder / CONFIG} is not the run's: the file was edited")
    rounds = bool(config.get("quantize")) and data.eight_bit
    return replace(palette, rounded=EightBit(data.bounds) if rounds else None)


@dataclass(frozen=True)
class StoredInputs:
    """Inputs in a run folder, in one file or in shards; each is checked against its digest when first opened."""

    folder: Path
    index: Index
    rows: Sequence[int]  # indices in the run
    remake: Remake | None = None
    checked: set[str] = field(default_factory=set, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.index.shape

    def has(self, row: int) -> bool:
        """Whether the inputs of a sample can be read."""
        return self.remake is not None or self.index.at(self.rows[row]) is not None

    def where(self, rows: Sequence[int]) -> StoredInputs:
        """Select the samples `rows` without reading them."""
        return replace(self, rows=[self.rows[i] for i in rows])

    def all(self) -> Pair:
        return self.read(range(len(self.rows)))

    def read(self, rows: Sequence[int]) -> Pair:
        places, missing = [self.rows[i] for i in rows], list[int]()
        pair = tuple(torch.empty(len(rows), *self.index.shape) for _ in range(2))
        ends = list(accumulate(count for _, count in self.index.shards))
        shards: dict[int, list[tuple[int, int]]] = {}  # position in the output and in the shard
        for at, place in enumerate(places):
            stored = self.index.at(place)
            if stored is None:
                missing.append(at)
            else:
                shard = bisect_right(ends, stored)
                shards.setdefault(shard, []).append((at, stored - ends[shard] + self.index.shards[shard][1]))
        with reading(self.folder):
            for shard, found in shards.items():
                with opened_arrays(self._checked(self.index.shards[shard][0])) as file:
                    for out, name in zip(pair, (ORIGINAL, PERTURBED), strict=True):
                        held = file.get_slice(name)
                        for at, inner in found:
                            out[at] = held[inner]
        if missing:
            if self.remake is None:
                raise FolderError(
                    f"{self.folder} does not store the inputs of {len(missing)} samples: pass the data of the run with "
                    "--data or AttackResult.load(folder, data)"
                )
            for out, part in zip(pair, self.remake([places[at] for at in missing]), strict=True):
                out[missing] = part
        return pair[0], pair[1]

    def _checked(self, name: str) -> Path:
        """The path of a shard; its digest is checked once."""
        path = inside(self.folder, name)
        if name not in self.checked:
            check_part(path)
            self.checked.add(name)
        return path


Inputs = HeldInputs | StoredInputs  # original and perturbed inputs of n samples
