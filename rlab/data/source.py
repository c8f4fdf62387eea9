"""Samples that are read a chunk at a time: labels, names and shape of all are known, their values stay on disk.

    source = rlab.load("photos/", size=224, stream=True)
    source[64:128]  # a Batch

Files are known by size and time of change, taken at the start; what is read of one that changed since is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from rlab.data.batch import Batch, Samples
from rlab.data.fields import check_room
from rlab.errors import InputError
from rlab.storage.outside import is_text, short

Loss = tuple[str, str]  # an id, and why the sample could not be used
THREADS = min(8, os.cpu_count() or 1)  # that decode a chunk
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Decoded:
    """What was read of some rows: those at the positions `kept`, and (id, why) of the rest."""

    x: Tensor | None  # (kept, c, *size); None where nothing could be read
    kept: Sequence[int]
    losses: Sequence[Loss] = ()
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of a batch


@dataclass(frozen=True, repr=False)
class Source(Samples):
    """Samples that are read when they are asked for. What cannot be decoded is left out then, and named."""

    read: Callable[[Sequence[int]], Decoded]
    sample_shape: tuple[int, ...]  # (c, *size)
    y: Tensor
    ids: tuple[str, ...]
    files: tuple[Path, ...]  # that the samples lie in
    one_each: bool = False  # whether the i-th file is the i-th sample's
    bounds: tuple[float, float] = (0.0, 1.0)
    classes: tuple[str, ...] = ()
    unit: str = ""
    rate: float | None = None
    left_out: tuple[Loss, ...] = ()
    leads: tuple[str, ...] = ()
    stamps: tuple[tuple[int, int], ...] = ()  # size and time of change of each file, at the start

    def __post_init__(self) -> None:
        if not self.ids:
            raise InputError("expected at least one sample, got none")
        if wrong := [name for name in (*self.ids, *self.classes) if not is_text(name)]:
            raise InputError(f"expected names that can be written as UTF-8, got {short(wrong[0])}: rename it")
        if not self.stamps:
            object.__setattr__(self, "stamps", tuple(map(_stamp, self.files)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample_shape

    @property
    def bytes(self) -> int:
        """That all samples would take in memory."""
        return 4 * len(self) * int(torch.Size(self.shape).numel())

    def first(self, count: int | None) -> Source:
        """The first samples, at most `count`."""
        files, stamps = (self.files[:count], self.stamps[:count]) if self.one_each else (self.files, self.stamps)
        return replace(self, y=self.y[:count], ids=self.ids[:count], files=files, stamps=stamps)

    def __getitem__(self, rows: slice | Sequence[int]) -> Batch:
        batch, losses = self.chunk(range(len(self))[rows] if isinstance(rows, slice) else rows)
        if batch is None:
            raise InputError(f"none of {len(losses)} samples can be read, first {losses[0][0]!r} ({losses[0][1]})")
        return replace(batch, left_out=tuple(losses))

    def chunk(self, rows: Sequence[int]) -> tuple[Batch | None, Sequence[Loss]]:
        """Those of the rows that can be read, if any, and (id, why) of the rest."""
        check_room(len(rows), self.shape)
        try:
            values = self.read(rows)
        except OSError as error:
            raise InputError(f"cannot read the data any more: {error}") from error
        self._check(rows)
        if values.x is None:
            return None, values.losses
        chosen = [rows[i] for i in values.kept]
        batch = Batch(
            x=values.x,
            y=self.y[chosen],
            ids=tuple(self.ids[i] for i in chosen),
            bounds=self.bounds,
            classes=self.classes,
            unit=self.unit,
            rate=self.rate,
            leads=self.leads,
            **values.more,
        )
        if batch.shape != self.shape:
            sizes = f"{self.size} and, in {batch.ids[0]!r}, {batch.size}"
            raise InputError(f"expected samples of one size, got {sizes}: pass a size")
        return batch, values.losses

    def _check(self, rows: Sequence[int]) -> None:
        for at in rows if self.one_each else range(len(self.files)):
            if _stamp(self.files[at]) != self.stamps[at]:
                raise InputError(
                    f"{str(self.files[at])!r} changed after the run had begun: put it back as it was, or begin another run"
                )

    def fingerprint(self) -> str:
        """Of names, sizes and times of change of the files, and of all labels and ids; nothing is read for it."""
        whole = hashlib.sha256(self.y.numpy().tobytes())
        facts = [*self.shape, *self.bounds, *self.ids, *self.classes, *(file.name for file in self.files), *self.stamps]
        whole.update(json.dumps(facts).encode())
        return whole.hexdigest()[:24]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def decode(made: Callable[[Item], Tensor | str], items: Sequence[Item], ids: Sequence[str]) -> Decoded:
    """Samples (c, *size) by several threads, stacked; what is a text in place of one is why there is none."""
    x, kept, losses = None, list[int](), list[Loss]()
    for row, sample in enumerate(_in_threads(made, items)):
        if isinstance(sample, str):
            losses.append((ids[row], sample))
            continue
        if x is None:
            x = torch.empty(len(items), *sample.shape)
        if sample.shape != x.shape[1:]:
            sizes = f"{tuple(x.shape[2:])} and, in {ids[row]!r}, {tuple(sample.shape[1:])}"
            raise InputError(f"expected samples of one size, got {sizes}: pass a size")
        x[len(kept)] = sample
        kept.append(row)
    return Decoded(None if x is None else x[: len(kept)], kept, losses)


def _in_threads(made: Callable[[Item], Made], items: Sequence[Item]) -> Iterable[Made]:
    """In order, with few of them made before they are taken."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: list[Future[Made]] = []
        for item in items:
            waiting.append(pool.submit(made, item))
            if len(waiting) > 2 * THREADS:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


Chunk = tuple[Batch | None, Sequence[Loss]]


@contextmanager
def read_ahead(data: Samples, chunks: Sequence[slice]) -> Iterator[Callable[[slice], Chunk]]:
    """A function that gives these chunks, of which the next is read while somebody works on the last one given."""
    if not isinstance(data, Source):
        yield lambda rows: (data[rows], ())
        return
    source, coming = data, dict[int, Future[Chunk]]()
    following = {rows.start: after for rows, after in pairwise(chunks)}
    pool = ThreadPoolExecutor(1)

    def give(rows: slice) -> Chunk:
        future = coming.pop(rows.start, None)
        given = source.chunk(range(rows.start, rows.stop)) if future is None else future.result()
        after = following.get(rows.start)
        if after is not None and not coming:
            coming[after.start] = pool.submit(source.chunk, range(after.start, after.stop))
        return given

    try:
        yield give
    finally:
        pool.shutdown(cancel_futures=True)
