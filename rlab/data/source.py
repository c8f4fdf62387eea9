"""Samples read in chunks: labels, ids and shape are in memory, values stay on disk.

    source = rlab.load("photos/", size=224, stream=True)
    source[64:128]  # a Batch

The size and modification time of each file are recorded at the start; a later change raises an error.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from rlab.data.fields import DataFields, check_room
from rlab.data.take import Take
from rlab.errors import DataError, InputError, MissingExtra
from rlab.progress import PATIENCE, bar
from rlab.storage.config import Bounds

Pixels = NDArray[np.uint8]
Loss = tuple[str, str]  # (id, reason) of a skipped sample
Chunk = tuple[Batch | None, Sequence[Loss]]  # see `Source.chunk`
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
    files: tuple[Path, ...]  # that hold the samples
    parts: tuple[Sequence[int], ...] = ()  # of each sample: positions of the files that hold it; if empty, all may
    whole: bool = False  # in memory, a sample that cannot be read is an error
    stamps: tuple[tuple[int, int], ...] = ()  # size and modification time of each file at the start
    options: str = ""  # how the files are read, as text

    def __post_init__(self) -> None:
        if not self.ids:
            raise DataError("expected at least one sample, got none")
        self._check_facts()
        if not self.stamps:
            object.__setattr__(self, "stamps", tuple(map(stamp, self.files)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sample_shape

    @property
    def bytes(self) -> int:
        """Memory that all samples would take."""
        return 4 * len(self) * int(torch.Size(self.shape).numel())

    def first(self, count: int | None) -> Source:
        """The first `count` samples."""
        return self.select(Take(count, order="first"))

    def select(self, take: Take) -> Source:
        """Some of the samples, chosen by their labels; none is read."""
        rows, read = take.rows(self.y), self.read
        held = sorted(self._held(rows))
        files, stamps = (tuple(each[i] for i in held) for each in (self.files, self.stamps))
        known = self._picked(rows) | {"files": files, "stamps": stamps, "take": take}
        if self.parts:
            place = {old: new for new, old in enumerate(held)}
            known["parts"] = tuple([place[i] for i in self.parts[row]] for row in rows)
        return replace(self, read=lambda wanted: read([rows[i] for i in wanted]), **known)

    def __getitem__(self, rows: slice | Sequence[int]) -> Batch:
        batch, losses = self.chunk(range(len(self))[rows] if isinstance(rows, slice) else rows)
        if batch is None:
            raise DataError(f"none of {len(losses)} samples can be read, first {losses[0][0]!r} ({losses[0][1]})")
        return replace(batch, left_out=tuple(losses))

    def chunk(self, rows: Sequence[int]) -> Chunk:
        """The readable rows, if any, and (id, reason) of the others."""
        check_room(len(rows), self.shape)
        try:
            values = self.read(rows)
        except OSError as error:
            raise DataError(f"cannot read the data: {error}") from error
        self._check(rows)
        if values.x is None:
            return None, values.losses
        chosen = [rows[i] for i in values.kept]
        facts: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Facts)}
        batch = Batch(values.x, **facts | self._picked(chosen) | {"left_out": (), **values.more})
        check_same_shape(batch.shape, self.shape, batch.ids[0])
        return batch, values.losses

    def _check(self, rows: Sequence[int]) -> None:
        for at in self._held(rows):
            if stamp(self.files[at]) != self.stamps[at]:
                raise DataError(f"{str(self.files[at])!r} changed during the run: restore it, or start a new run")

    def _held(self, rows: Sequence[int]) -> Collection[int]:
        """Positions of the files that hold these samples."""
        return {at for row in rows for at in self.parts[row]} if self.parts else range(len(self.files))


def own_files(samples: int) -> tuple[Sequence[int], ...]:
    """The `parts` of a source with one file for each sample."""
    return tuple((at,) for at in range(samples))


def stamp(path: str | Path) -> tuple[int, int]:
    """Size and modification time of a file; -1 for both if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def decode(function: Decode[Item], items: Sequence[Item], ids: Sequence[str], bounds: Bounds) -> Decoded:
    """Decode items in several threads and stack the samples."""

    def to_sample(item: Item) -> Tensor | Unreadable:
        try:
            return to_float(function(item), bounds)
        except Unreadable as reason:
            return reason

    x, kept, losses = None, list[int](), list[Loss]()
    with bar(len(items), "reading", patience=PATIENCE) as progress:
        for row, sample in enumerate(_in_threads(to_sample, items)):
            progress(ids[row : row + 1])
            if isinstance(sample, Unreadable):
                losses.append((ids[row], str(sample)))
                continue
            if x is None:
                check_room(len(items), sample.shape)
                x = torch.empty(len(items), *sample.shape)
            check_same_shape(sample.shape, x.shape[1:], ids[row])
            x[len(kept)] = sample
            kept.append(row)
    return Decoded(None if x is None else x[: len(kept)], kept, losses)


def reader(function: Decode[Item], items: Sequence[Item], ids: Sequence[str], bounds: Bounds) -> Read:
    """A function that decodes some of the items."""
    return lambda rows: decode(function, [items[i] for i in rows], [ids[i] for i in rows], bounds)


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
    for name, item in items.items():
        try:
            with reading():
                found[name] = function(item)
        except Unreadable as reason:
            losses.append((name, str(reason)))
    return found, losses


def first_loss(losses: Sequence[Loss]) -> str:
    """The first loss as the end of an error sentence."""
    return f": {losses[0][0]} {losses[0][1]}" if losses else ": they hold none"


def check_same_shape(shape: Sequence[int], expected: Sequence[int], name: str) -> None:
    """Raise an error if the sample `name` of this shape (c, *size) differs from the others."""
    if tuple(shape) != tuple(expected):
        sizes = f"{tuple(expected[1:])} and, in {name!r}, {tuple(shape[1:])}"
        raise DataError(f"expected samples of one size, got {sizes}: pass a size (--size 224)")


def _in_threads(function: Callable[[Item], Output], items: Sequence[Item]) -> Iterable[Output]:
    """Yield results in order and compute only a few of them in advance."""
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: list[Future[Output]] = []
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * THREADS:
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


Loader = Callable[[DataFields], Source]
ACCEPTED: dict[Loader, tuple[str, ...]] = {}  # the fields that each loader reads, besides those that all share


def reads(*names: str) -> Callable[[Loader], Loader]:
    """Declare which fields the decorated loader reads."""

    def add(loader: Loader) -> Loader:
        ACCEPTED[loader] = names
        return loader

    return add


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
