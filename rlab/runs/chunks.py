"""The loop over chunks: read ahead, hand out, and yield the results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlab.data.batch import Batch, Samples
from rlab.data.source import Loss, read_ahead
from rlab.runs.messages import HandOut


@dataclass(frozen=True)
class ChunkTask:
    """One chunk for an executor."""

    key: str
    chunk: Batch | None  # None if none of its samples could be read
    first: int  # index of its first sample in the run


def each_chunk(
    samples: Samples,
    chunks: Mapping[str, slice],
    hand_out: HandOut,
    begin: Callable[[str], None],
    agree: Callable[[str], None],
) -> Generator[tuple[str, Any, Sequence[Loss]]]:
    """Yield (key, result, samples that could not be read) as chunks finish.

    `begin` is called before a chunk is handed out, `agree` before its worker writes anything.
    """
    lost: dict[str, Sequence[Loss]] = {}
    with read_ahead(samples, list(chunks.values())) as read:

        def task(key: str) -> ChunkTask:
            begin(key)
            chunk, lost[key] = read(chunks[key])
            return ChunkTask(key, chunk, chunks[key].start)

        with closing(hand_out({key: partial(task, key) for key in chunks}, agree)) as parts:
            for key, part in parts:
                yield key, part, lost.pop(key)


def ignore(key: str) -> None:
    """Do nothing when a chunk begins or before it is written."""
