"""Samples read in chunks: labels, ids and shape are in memory, values stay on disk.

    source = rlab.load("photos/", size=224, stream=True)
    source[64:128]  # a Batch

The size and modification time of each file are recorded at the start; a later change raises an error.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import Batch, Facts, Kind, Samples
from rlab.data.eight_bit import to_float
from rlab.data.fields import check_room
from rlab.data.take import Take
from rlab.errors import DataError, InputError, MissingExtra
from rlab.progress import PATIENCE, bar
from rlab.storage.config import Bounds

Pixels = NDArray[np.uint8]
Loss = tuple[str, str]  # (id, reason) of a skipped sample
Chunk = tuple[Batch | None, Sequence[Loss]]  # see `Source.chunk`
Stamp = tuple[int, int]  # size and modification time of a file
_PLURALS: dict[Kind, str] = {"signal": "signals", "image": "images", "video": "clips"}
THREADS = min(8, os.cpu_count() or 1)  # used to decode a chunk
Item = TypeVar("Item")
Output = TypeVar("Output")


@dataclass(frozen=True)
class Decoded:
    """Values of the rows at the positions `kept`, and (id, reason) of the others."""

    x: Tensor | None  # (kept, c, *size); None if no row could be read
    kept: Sequence[int]
    losses: Sequence[Loss] = ()
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of the batch


Read = Callable[[Sequence[int]], Decoded]  # the samples in some rows
Decode = Callable[[Item], NDArray[np.generic]]  # a sample (c, *size); raises `Unreadable`


@dataclass(frozen=True, repr=False)
class Source(Samples):
    """Samples that are read on demand; those that cannot be decoded are skipped and listed."""

    read: Read
    sample_shape: tuple[int, ...]  # (c, *size)
    y: Tensor
    ids: tuple[str, ...]
    files: Sequence[Sequence[Path]] = ()  # of each sample: the files that hold it
    whole: bool = False  # in memory, a sample that cannot be read is an error
    stamps: Mapping[Path, Stamp] = field(default_factory=dict)  # of each file at the start
    options: str = ""  # how the files are read, as text

    def __post_init__(self) -> None:
        if not self.ids:
            raise DataError("expected at least one sample, got none")
        self._check_facts()
        if not self.stamps:
            object.__setattr__(self, "stamps", {path: stamp(path) for path in self.paths(range(len(self)))})

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample_shape

    @property
    def bytes(self) -> int:
        """Memory that all samples would take."""
        return 4 * len(self) * math.prod(self.shape)

    def paths(self, rows: Iterable[int]) -> Iterable[Path]:
        """The files that hold these samples, each once."""
        return dict.fromkeys(path for row in rows for path in self.files[row]) if self.files else ()

    def select(self, take: Take) -> Source:
        """Some of the samples, chosen by their labels; none is read."""
        rows, read = take.rows(self.y), self.read
        files = [self.files[row] for row in rows] if self.files else ()
        return replace(
            self, read=lambda wanted: read([rows[i] for i in wanted]), files=files, take=take, **self._picked(rows)
        )

    def __getitem__(self, rows: slice | Sequence[int]) -> Batch:
        batch, losses = self.chunk(range(len(self))[rows] if isinstance(rows, slice) else rows)
        if batch is None:
            raise DataError(f"none of {len(losses)} samples can be read{first_loss(losses)}")
        return replace(batch, left_out=tuple(losses))

    def chunk(self, rows: Sequence[int]) -> Chunk:
        """The readable rows, if any, and (id, reason) of the others."""
        check_room(len(rows), self.shape)
        try:
            values = self.read(rows)
        except OSError as error:
            raise DataError(f"cannot read the data: {error}") from error
        if changed := [path for path in self.paths(rows) if stamp(path) != self.stamps[path]]:
            raise DataError(f"{str(changed[0])!r} changed during the run: restore it, or start a new run")
        if values.x is None:
            return None, values.losses
        chosen = [rows[i] for i in values.kept]
        facts: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Facts)}
        batch = Batch(values.x, **facts | self._picked(chosen) | {"left_out": (), **values.more})
        check_same_shape(batch.shape, self.shape, batch.ids[0])
        return batch, values.losses


def stamp(path: str | Path) -> Stamp:
    """Size and modification time of a file; -1 for both if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def decoded(
    function: Decode[Item],
    items: Mapping[str, Item],
    y: Tensor,
    files: Sequence[Sequence[Path]],
    shape: tuple[int, ...] | None = None,
    **facts: Any,
) -> Source:
    """Samples that `function` decodes one by one; without a shape, all have that of the first that it can decode."""
    ids, each, bounds = tuple(items), list(items.values()), facts["bounds"]

    def read(rows: Sequence[int]) -> Decoded:
        return decode(function, [each[i] for i in rows], [ids[i] for i in rows], bounds)

    return Source(read, shape or _first_shape(function, items), y, ids, files, **facts)


def _first_shape(function: Decode[Item], items: Mapping[str, Item]) -> tuple[int, ...]:
    losses = list[Loss]()
    for name, item in items.items():
        try:
            with reading():
                return function(item).shape
        except Unreadable as reason:
            losses.append((name, str(reason)))
    raise DataError(f"none of {len(items)} samples can be read{first_loss(losses)}")


def decode(function: Decode[Item], items: Sequence[Item], ids: Sequence[str], bounds: Bounds) -> Decoded:
    """Decode items in several threads and stack the samples."""

    def to_sample(item: Item) -> Tensor | Unreadable:
        try:
            with reading():
                return to_float(function(item), bounds)
        except Unreadable as reason:
            return reason

    x, kept, losses, pool = None, list[int](), list[Loss](), ThreadPoolExecutor(THREADS)
    try:
        with bar(len(items), "reading", patience=PATIENCE) as progress:
            for row, sample in enumerate(pool.map(to_sample, items)):
                progress(ids[row : row + 1])
                if isinstance(sample, Unreadable):
                    losses.append((ids[row], str(sample)))
                    continue
                if x is None:
                    x = torch.empty(len(items), *sample.shape)
                check_same_shape(sample.shape, x.shape[1:], ids[row])
                x[len(kept)] = sample
                kept.append(row)
    finally:
        pool.shutdown(cancel_futures=True)
    return Decoded(None if x is None else x[: len(kept)], kept, losses)


def read_all(found: Source) -> Batch:
    """All samples that can be read, with the reasons why others cannot."""
    with warnings.catch_warnings(action="ignore"):  # of broken files, which the losses name
        batch, losses = found.chunk(range(len(found)))
    if batch is None or (found.whole and losses):
        count = f"{len(losses)} of {len(found)} {_PLURALS[found.kind]} cannot be read"
        raise DataError(f"{count}, first {losses[0][0]!r} ({losses[0][1]}): replace them")
    return replace(batch, left_out=(*found.left_out, *losses))


class Unreadable(Exception):
    """Why a sample cannot be used; loaders skip and list it."""


@contextmanager
def reading() -> Iterator[None]:
    """Turn the errors that libraries raise on broken files into `Unreadable`."""
    try:
        yield
    except (Unreadable, InputError, MissingExtra):
        raise
    except Exception as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise Unreadable(f"cannot be read: {why}") from error


def readable(function: Callable[[Item], Output], items: Mapping[str, Item]) -> tuple[dict[str, Output], list[Loss]]:
    """What the function returns for each item, by name, and (name, reason) of those that it cannot read."""
    found, losses = dict[str, Output](), list[Loss]()
    with bar(len(items), "reading headers", unit="files", patience=PATIENCE) as progress:
        for name, item in items.items():
            try:
                with reading():
                    found[name] = function(item)
            except (Unreadable, InputError) as reason:
                losses.append((name, str(reason)))
            progress((name,))
    return found, losses


def first_loss(losses: Sequence[Loss]) -> str:
    """The first loss as the end of an error sentence."""
    return f": {losses[0][0]} {losses[0][1]}" if losses else ": they hold none"


def check_same_shape(shape: Sequence[int], expected: Sequence[int], name: str) -> None:
    """Raise an error if the sample `name` of this shape (c, *size) differs from the others."""
    if tuple(shape) != tuple(expected):
        sizes = f"{tuple(expected[1:])} and, in {name!r}, {tuple(shape[1:])}"
        raise DataError(f"expected samples of one size, got {sizes}: pass a size (--size 224)")


@contextmanager
def read_ahead(data: Samples, chunks: Sequence[slice]) -> Iterator[Callable[[slice], Chunk]]:
    """Return a function that reads these chunks and reads the next one in the background."""
    if not isinstance(data, Source):
        yield lambda rows: (data[rows], ())
        return
    source, pending = data, dict[int, Future[Chunk]]()
    following = {rows.start: after for rows, after in pairwise(chunks)}
    pool, context = ThreadPoolExecutor(1), copy_context()  # with the context, no bar is shown inside the attack's

    def read(rows: slice) -> Chunk:
        future = pending.pop(rows.start, None)
        chunk = source.chunk(range(rows.start, rows.stop)) if future is None else future.result()
        after = following.get(rows.start)
        if after is not None and not pending:
            pending[after.start] = pool.submit(context.run, source.chunk, range(after.start, after.stop))
        return chunk

    try:
        yield read
    finally:
        pool.shutdown(cancel_futures=True)
