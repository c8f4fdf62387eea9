"""Chunks of samples: the work on one (search, store, read back, verify), in memory or into a file, and the files that join them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.outcome import SearchOutcome
from rlab.core.trace import tally_of
from rlab.data.batch import Batch, Samples, summarise_losses
from rlab.data.source import Loss, read_ahead
from rlab.errors import DataError
from rlab.progress import Progress, Tally
from rlab.results.kept import LETTERS, Keep, rendered
from rlab.results.result import AttackResult
from rlab.results.rows import losses_of, to_table, with_losses
from rlab.runs.options import AttackOptions
from rlab.storage import files
from rlab.storage.digest import digest
from rlab.storage.index import ASSIGNMENT, KEPT, ORIGINAL, PERTURBED, Index, read_index
from rlab.storage.journal import Journal, journal_path
from rlab.storage.resume import Resume
from rlab.storage.run_file import PARTS
from rlab.storage.steps import check_part, part_path
from rlab.storage.tables import write_tables
from rlab.victims.base import Victim


@dataclass(frozen=True)
class ChunkTask:
    """One chunk for an executor."""

    key: str
    batch: Batch | None  # None if none of its samples could be read
    first: int  # index of its first sample in the run
    losses: Sequence[Loss] = ()  # samples that could not be read
    journal: bytes = b""  # answers that are there already, for a worker on another machine


def chunk_tasks(samples: Samples, chunks: Mapping[str, slice], sent: Path | None = None) -> Iterator[ChunkTask]:
    """Read chunk after chunk; journals in the folder `sent` travel along."""
    with read_ahead(samples, list(chunks.values())) as read:
        for key, rows in chunks.items():
            batch, losses = read(rows)
            journal = None if sent is None else journal_path(sent, key)
            answers = journal.read_bytes() if journal is not None and journal.exists() else b""
            yield ChunkTask(key, batch, rows.start, losses, answers)


def places(samples: Samples, rows: slice, read: Sequence[str]) -> Tensor:
    """Row numbers (b,) in the run of those samples in `rows` that could be read, by their ids, which keep their order."""
    ids = enumerate(samples.ids[rows], rows.start)
    return torch.tensor([next(at for at, name in ids if name == wanted) for wanted in read], dtype=torch.int64)


@dataclass(frozen=True)
class FinishedChunk:
    """What came of a chunk: a result in memory, or rows of a table, with files if they were written on another machine."""

    key: str
    losses: Sequence[Loss] = ()
    result: AttackResult | None = None
    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    sent: Counter[str] = field(default_factory=Counter)  # rows that reached the model, by phase
    files: Mapping[str, bytes] = field(default_factory=dict)  # of the folder with the parts

    def __len__(self) -> int:
        return len(self.losses) + (self.rows.num_rows if self.result is None else len(self.result))

    @property
    def table(self) -> pa.Table:
        """The rows, with the samples that could not be read in the metadata."""
        return with_losses(self.rows, self.losses)


@dataclass
class ChunkWork:
    """Attacks one chunk after the other, in memory, or into files of a folder from which flips are verified."""

    victim: Victim
    recipe: Attack | AttackOptions  # a worker builds the attack from its options, once
    labels: Tensor  # of the whole run
    progress: Progress
    folder: Path | None
    keep: Keep
    learns: bool  # whether journals are kept
    sends: bool  # whether files are written elsewhere and sent

    def __call__(self, task: ChunkTask) -> FinishedChunk:
        if task.batch is None:
            return FinishedChunk(task.key, task.losses)
        if not isinstance(self.recipe, Attack):
            self.recipe = self.recipe.build(task.batch)
        attack, before, folder = self.recipe, self.victim.rows.copy(), self.folder
        search = partial(attack.search, self.victim, task.batch, task.first, self.labels, self.progress)
        if folder is None:
            result = AttackResult.of(search())
            return FinishedChunk(task.key, task.losses, result, sent=self.victim.rows - before)
        with ExitStack() as stack:
            if self.sends:
                folder = Path(stack.enter_context(TemporaryDirectory()))
                (folder / PARTS).mkdir()
            part, answers = part_path(folder, task.key), journal_path(folder, task.key)
            if task.journal:
                answers.write_bytes(task.journal)
            with Journal(answers, self.learns) as journal:
                outcome = search(journal, partial(self._stored, attack, part))
            kept = (part, *([answers] if self.learns else [])) if self.sends else ()
            sent = {path.name: path.read_bytes() for path in kept}
            rows = to_table(AttackResult.of(outcome), self._marks(outcome))
            return FinishedChunk(task.key, task.losses, None, rows, self.victim.rows - before, sent)

    def _stored(self, attack: Attack, part: Path, outcome: SearchOutcome) -> Tensor:
        """Write a part, and return all inputs with the stored ones in it, or with flips rebuilt from the assignments."""
        count, flips, batch = len(outcome.batch), outcome.rows, outcome.batch
        rows = {"everything": torch.arange(count), "flips": flips, "assignments": flips[:0]}[self.keep]
        kept = torch.zeros(count, dtype=torch.uint8)
        kept[rows] = 1
        inputs = {ORIGINAL: batch.x.contiguous()[rows], PERTURBED: outcome.perturbed[rows]}
        files.write_arrays(part, {ASSIGNMENT: outcome.assignment, KEPT: kept, **inputs}, outcome.setting.to_json())
        arrays, stored = files.read_arrays(part)[0], outcome.perturbed.clone()
        stored[arrays[KEPT].bool()] = arrays[PERTURBED]
        if self.keep == "assignments":
            chosen, x, seeds = arrays[ASSIGNMENT][flips], batch.x[flips], outcome.seeds[flips]
            stored[flips] = rendered(attack.palette, attack.grid, x, batch.bounds, seeds, chosen)
        return stored

    def _marks(self, outcome: SearchOutcome) -> list[str] | None:
        """Digests of flips that are not stored; None if everything is."""
        if self.keep == "everything":
            return None
        unstored = set(outcome.rows.tolist()) if self.keep == "assignments" else ()
        return [digest(x, length=LETTERS) if i in unstored else "" for i, x in enumerate(outcome.stored)]


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
        check_part(resume.part(key))
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
    write_tables(resume.folder / files.SAMPLES, tables, setting)
