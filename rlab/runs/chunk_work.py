"""Chunks of samples: the loop over them, the work on one (search, store, read back, verify), and the files that join them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.attack import Attack, SearchOutcome
from rlab.core.trace import tally_of
from rlab.data.batch import Batch, Samples, summarise_losses
from rlab.data.source import Loss, read_ahead
from rlab.errors import DataError
from rlab.progress import Progress, Tally
from rlab.results.kept import LETTERS, Keep, rendered
from rlab.results.result import AttackResult
from rlab.results.rows import losses_of, to_table, write_samples
from rlab.runs.executor import HandOut
from rlab.runs.options import AttackOptions
from rlab.runs.threads import Threads
from rlab.runs.worker import Work
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.index import ASSIGNMENT, KEPT, PERTURBED, Index, read_index
from rlab.storage.journal import Journal, journal_path
from rlab.storage.resume import Resume
from rlab.storage.run_file import PARTS
from rlab.storage.steps import part_path
from rlab.victims.base import Victim


def places(samples: Samples, rows: slice, read: Sequence[str]) -> Tensor:
    """Row numbers (b,) in the run of those samples in `rows` that could be read, by their ids, which keep their order."""
    ids = enumerate(samples.ids[rows], rows.start)
    return torch.tensor([next(at for at, name in ids if name == wanted) for wanted in read], dtype=torch.int64)


@dataclass(frozen=True)
class ChunkTask:
    """One chunk for an executor."""

    key: str
    chunk: Batch | None  # None if none of its samples could be read
    first: int  # index of its first sample in the run
    timed: Tensor | None = None  # (n,) queries that timed the model


def each_chunk(
    samples: Samples,
    chunks: Mapping[str, slice],
    hand_out: HandOut,
    begin: Callable[[str], None] = lambda key: None,
    threads: Threads | None = None,
) -> Generator[tuple[str, Any, Sequence[Loss]]]:
    """Yield (key, result, samples that could not be read) as chunks finish.

    `begin` is called before a chunk is handed out; `threads` knows which samples were timed.
    """
    lost: dict[str, Sequence[Loss]] = {}
    with read_ahead(samples, list(chunks.values())) as read:

        def task(key: str) -> ChunkTask:
            begin(key)
            chunk, lost[key] = read(chunks[key])
            if chunk is None:
                return ChunkTask(key, chunk, chunks[key].start)
            timed = None if threads is None else threads.timed(places(samples, chunks[key], chunk.ids))
            return ChunkTask(key, chunk, chunks[key].start, timed)

        with closing(hand_out({key: partial(task, key) for key in chunks})) as parts:
            for key, part in parts:
                yield key, part, lost.pop(key)


@dataclass(frozen=True)
class SentChunk:
    """A chunk from a worker that does not share the folder: its rows, the file they were verified from, and its journal."""

    rows: pa.Table
    content: bytes  # empty if no sample of the chunk could be read
    journal: bytes


@dataclass(frozen=True)
class HeldChunk:
    """A chunk attacked in memory."""

    result: AttackResult
    rows: Counter[str]  # that reached the model, by phase


def attack_in_memory(victim: Victim, recipe: Attack | AttackOptions, labels: Tensor, progress: Progress) -> Work:
    """Return work that attacks a chunk in memory and counts the rows that reached the model by phase."""

    def work(task: ChunkTask) -> HeldChunk | None:
        if task.chunk is None:
            return None
        attack, before = built(recipe, task.chunk), victim.rows.copy()
        outcome = _searched(attack, victim, task, labels, progress)
        result = AttackResult.of(attack.verify(outcome, outcome.perturbed), outcome.perturbed)
        return HeldChunk(result, victim.rows - before)

    return work


def _searched(
    attack: Attack, victim: Victim, task: ChunkTask, labels: Tensor, progress: Progress, journal: Journal | None = None
) -> SearchOutcome:
    assert task.chunk is not None
    return attack.search(victim, task.chunk, task.first, labels, progress, task.timed, journal)


def write_chunk(
    victim: Victim,
    recipe: Attack | AttackOptions,
    labels: Tensor,
    progress: Progress,
    folder: Path,
    keep: Keep,
    learns: bool,
) -> Work:
    """Return work that attacks a chunk, writes it to the folder and verifies it from the file."""

    def work(task: ChunkTask) -> pa.Table:
        if task.chunk is None:  # none of its samples could be read
            return pa.table({})
        attack = built(recipe, task.chunk)
        with Journal(journal_path(folder, task.key), learns) as journal:
            outcome = _searched(attack, victim, task, labels, progress, journal)
            part = part_path(folder, task.key)
            _write(outcome, part, keep)
            return _verified(attack, outcome, files.read_arrays(part)[0], keep)

    return work


def send_chunk(
    victim: Victim,
    recipe: Attack | AttackOptions,
    labels: Tensor,
    progress: Progress,
    folder: Path,
    keep: Keep,
    learns: bool,
) -> Work:
    """Return the same work for another machine, where the file is written and verified before it is sent."""

    def work(task: ChunkTask) -> SentChunk:
        with TemporaryDirectory() as there:
            (Path(there) / PARTS).mkdir()
            rows = write_chunk(victim, recipe, labels, progress, Path(there), keep, learns)(task)
            if task.chunk is None:
                return SentChunk(rows, b"", b"")
            journal = journal_path(Path(there), task.key).read_bytes() if learns else b""
            return SentChunk(rows, part_path(Path(there), task.key).read_bytes(), journal)

    return work


def built(recipe: Attack | AttackOptions, samples: Samples) -> Attack:
    """Return the attack, or build it from its options."""
    return recipe if isinstance(recipe, Attack) else recipe.build(samples)


def _write(outcome: SearchOutcome, part: Path, keep: Keep) -> None:
    count = len(outcome.batch)
    rows = {"everything": torch.arange(count), "flips": outcome.rows, "assignments": outcome.rows[:0]}[keep]
    kept = torch.zeros(count, dtype=torch.uint8)
    kept[rows] = 1
    inputs = {name: array[rows] for name, array in outcome.arrays.items() if name != ASSIGNMENT}
    arrays = {ASSIGNMENT: outcome.assignment, KEPT: kept, **inputs}
    files.write_arrays(part, arrays, outcome.setting.to_json())


def _verified(attack: Attack, outcome: SearchOutcome, arrays: Mapping[str, Tensor], keep: Keep) -> pa.Table:
    """Return the rows of a chunk, verified with the stored inputs or with inputs rebuilt from the assignments."""
    stored, flips, batch = outcome.perturbed.clone(), outcome.rows, outcome.batch
    stored[arrays[KEPT].bool()] = arrays[PERTURBED]
    if keep == "assignments":
        chosen = arrays[ASSIGNMENT][flips]
        x, seeds = batch.x[flips], outcome.seeds[flips]
        stored[flips] = rendered(attack.palette, attack.grid, x, batch.bounds, seeds, chosen)
    marks = [""] * len(stored)
    for i in flips.tolist() if keep == "assignments" else ():
        marks[i] = digest(stored[i], length=LETTERS)
    return to_table(AttackResult.of(attack.verify(outcome, stored), stored), None if keep == "everything" else marks)


# Finished chunks: their rows, and the files that join them.


def chunk_tables(resume: Resume) -> Iterator[pa.Table]:
    return (rows for _, rows in resume.values("chunk-"))


def samples_of(rows: pa.Table) -> int:
    """Count the samples of a chunk, including those that could not be read."""
    return int(rows.num_rows) + len(losses_of(rows))


def left_out(resume: Resume) -> list[Loss]:
    """List (id, reason) of the samples that could not be read."""
    return [loss for rows in chunk_tables(resume) for loss in losses_of(rows)]


@dataclass(frozen=True)
class FinishedRows:
    """A finished chunk for the progress bar; `recalled` if an earlier process ran it."""

    rows: pa.Table
    recalled: bool

    def __len__(self) -> int:
        return samples_of(self.rows)

    def tally(self) -> Tally:
        return tally_of(self.rows["status"].to_pylist() if self.rows.num_rows else [])


def join_chunks(resume: Resume, keys: Sequence[str], recalled: Sequence[str] = ()) -> None:
    """Join chunks into a file of assignments, which locates the inputs, and a table of rows, which marks the run complete.

    `recalled` parts, which an earlier process wrote, are checked against their digests."""
    for key in recalled:
        resume.check_part(key)
    parts = [resume.part(key) for key in keys if resume.part(key).exists()]
    if not parts:
        raise DataError(f"none of the samples can be read: {summarise_losses(left_out(resume))}")
    assignment, kept, setting = list[Tensor](), list[Tensor](), ""
    for part in parts:
        arrays, setting = files.read_arrays(part, ASSIGNMENT, KEPT)
        assignment.append(arrays[ASSIGNMENT])
        kept.append(arrays[KEPT])
    shards = tuple((f"{PARTS}/{part.name}", int(mask.sum())) for part, mask in zip(parts, kept, strict=True))
    index = Index(tuple(shard for shard in shards if shard[1]), read_index(parts[0]).shape)
    files.write_index(resume.folder, torch.cat(assignment), torch.cat(kept), index, setting)
    tables = (rows for rows in chunk_tables(resume) if rows.num_rows)
    write_samples(resume.folder, tables, setting)
