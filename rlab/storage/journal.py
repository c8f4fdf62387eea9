"""The journal of a chunk: each answer of the model is appended as it arrives, so that a killed run never pays for it again.

A search is deterministic given its answers. A run that goes on after a kill repeats the search of the chunk, and every input
that has an answer in the journal gets this answer; only what was on its way when the process died is sent again. An answer is
known by its sample and the fingerprint of its input, which decide together: an input that differs in one bit has no answer
here. Equal inputs of one sample get their answers in the order in which they came, because the answers of noisy models differ.

A run that learns from its own answers keeps its journals, which then hold the assignment of each input, from which the input can be
rendered again.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import defaultdict, deque
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlab.errors import FolderError
from rlab.storage.names import key_name
from rlab.storage.run_file import PARTS
from rlab.storage.stored import open_stored

_SUM = struct.Struct("<I")  # the checksum of what follows
_HEAD = struct.Struct("<4sIIII")  # _MARK, rows, scores in a row, patches in a row, how often the rows were sent
_MARK = b"rlj2"
_MOST = 2**30  # bytes of a file; answers beyond are not kept, because maps of classes would fill the disk
_AT_ONCE = 2**20  # values whose products are in memory together
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a value


@dataclass(frozen=True)
class Arrived:
    """Answers (m, k) to inputs of `samples` (m,) that were sent `sent` times before they were answered."""

    samples: Tensor
    prints: Tensor  # (m,) fingerprints of the inputs
    answers: Tensor
    sent: int
    assignment: Tensor | None = None  # (m, p) uint8 of the inputs, if the run learns


def journal_path(folder: Path, key: str) -> Path:
    """The journal of a chunk that is not finished."""
    return folder / PARTS / f"{key_name(key)}.journal"


class Journal:
    """The answers of one chunk, in a file that only this process writes."""

    def __init__(self, path: Path, learns: bool = False) -> None:
        """`learns`: whether the assignments of the inputs are kept, too."""
        self.learns = learns
        self._known = defaultdict[tuple[int, int], deque[tuple[Tensor, int]]](deque)
        self._late: Arrived | None = None  # of a GPU, whose answers are not there yet
        whole = 0
        for end, arrived in read_journal(path):
            whole = end
            for sample, print_, answer in zip(
                arrived.samples.tolist(), arrived.prints.tolist(), arrived.answers, strict=True
            ):
                self._known[sample, print_].append((answer, arrived.sent))
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        os.ftruncate(self._file, whole)  # a kill may have cut the last answer
        self._room = _MOST - whole

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self._write_late()
        os.close(self._file)

    def knows(self) -> bool:
        """Whether an earlier process was given answers that were not recalled yet."""
        self._write_late()
        return bool(self._known)

    def recall(self, samples: Tensor, x: Tensor) -> dict[int, tuple[Tensor, int]]:
        """The known answers to inputs x (m, c, *size), each with the number of times it was sent, by its row."""
        found = dict[int, tuple[Tensor, int]]()
        for row, key in enumerate(zip(samples.tolist(), fingerprints(x).tolist(), strict=True)):
            if key in self._known:
                found[row] = self._known[key].popleft()
                if not self._known[key]:
                    del self._known[key]
        return found

    def add(self, samples: Tensor, x: Tensor, answers: Tensor, sent: int, assignment: Tensor | None = None) -> None:
        """Append answers; those of a GPU at the next call, so that nothing waits for it."""
        self._write_late()
        arrived = Arrived(samples, fingerprints(x), answers, sent, assignment if self.learns else None)
        if answers.is_cuda:
            self._late = arrived
        else:
            self._write(arrived)

    def _write_late(self) -> None:
        late, self._late = self._late, None
        if late is not None:
            self._write(late)

    def _write(self, arrived: Arrived) -> None:
        rows, width = arrived.answers.shape
        empty = torch.zeros(rows, 0)
        assignment = empty if arrived.assignment is None else arrived.assignment
        kinds = (
            (arrived.samples, np.int32),
            (arrived.prints, np.int64),
            (arrived.answers, np.float32),
            (assignment, np.uint8),
        )
        body = b"".join(values.cpu().numpy().astype(kind).tobytes() for values, kind in kinds)
        record = _HEAD.pack(_MARK, rows, width, assignment.shape[1], arrived.sent) + body
        record = _SUM.pack(zlib.crc32(record)) + record
        self._room -= len(record)
        while record and self._room >= 0:
            record = record[os.write(self._file, record) :]


def read_journal(path: Path) -> list[tuple[int, Arrived]]:
    """The answers in a journal, each with the place in the file where it ends; what follows a damaged one is left out."""
    try:
        with open_stored(path) as file:
            content = file.read(_MOST)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror}") from error
    found, at = list[tuple[int, Arrived]](), 0
    while (first := at + _SUM.size + _HEAD.size) <= len(content):
        mark, rows, width, patches, sent = _HEAD.unpack_from(content, at + _SUM.size)
        end = first + rows * (4 + 8 + 4 * width + patches)
        whole = mark == _MARK and end <= len(content)
        if not whole or _SUM.unpack_from(content, at)[0] != zlib.crc32(content[at + _SUM.size : end]):
            break
        body = content[first:end]
        samples = torch.from_numpy(np.frombuffer(body, np.int32, rows).astype(np.int64))
        prints = torch.from_numpy(np.frombuffer(body, np.int64, rows, 4 * rows).copy())
        answers = torch.from_numpy(np.frombuffer(body, np.float32, rows * width, 12 * rows).copy())
        places = torch.from_numpy(np.frombuffer(body, np.uint8, rows * patches, rows * (12 + 4 * width)).copy())
        assignment = places.view(rows, patches) if patches else None
        found.append((end, Arrived(samples, prints, answers.view(rows, width), sent, assignment)))
        at = end
    return found


def begun_chunks(folder: Path, finished: Container[str] = ()) -> Iterator[tuple[int, list[Arrived]]]:
    """The first sample of each chunk that has a journal with answers and is not `finished`, by its name, and the answers."""
    for path in sorted((folder / PARTS).glob("*.journal")):
        first = path.stem.rpartition("-")[2]
        arrived = [] if path.stem in finished else [each for _, each in read_journal(path)]
        if arrived and first.isdecimal():
            yield int(first), arrived


def count_answers(folder: Path, finished: Container[str] = ()) -> int:
    """The number of queries whose answers are in journals of a run folder, those of `finished` chunks aside."""
    return sum(each.sent * len(each.samples) for _, arrived in begun_chunks(folder, finished) for each in arrived)


def fingerprints(x: Tensor) -> Tensor:
    """x (m, c, *size) -> (m,): sums of the bits of all values times fixed random numbers, modulo 2^64."""
    bits = x.contiguous().flatten(1).view(_INTEGERS[x.element_size()])
    weights = _weights(bits.shape[1], x.device)
    return torch.cat([(part * weights).sum(1) for part in bits.split(max(1, _AT_ONCE // bits.shape[1]))])


@cache
def _weights(values: int, device: torch.device) -> Tensor:
    """Odd, so that a change of one value always shows."""
    draw = torch.Generator().manual_seed(0)
    return (torch.randint(-(2**62), 2**62, (values,), generator=draw) * 2 + 1).to(device)
