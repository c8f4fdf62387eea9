"""Finished chunks of an attack: their rows in the ledger, and the files that join them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.trace import tally_of
from rlab.data.batch import summarise_losses
from rlab.data.source import Loss
from rlab.errors import DataError
from rlab.progress import Tally
from rlab.results.rows import losses_of, write_samples
from rlab.storage import files
from rlab.storage.index import Index, read_index
from rlab.storage.ledger import PARTS
from rlab.storage.resume import Resume


def chunk_tables(resume: Resume) -> Iterator[pa.Table]:
    return (rows for _, rows in resume.values("chunk-"))


def samples_of(rows: pa.Table) -> int:
    """Count the samples of a chunk, including those that could not be read."""
    return int(rows.num_rows) + len(losses_of(rows))


def queries_of(rows: pa.Table) -> int:
    """Count the queries of a chunk in all phases."""
    return sum(sum(rows[name].to_pylist()) for name in rows.column_names if name.startswith("queries_"))


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
        own, setting = files.read_assignment(part)
        assignment.append(own)
        kept.append(files.read_kept(part))
    shards = tuple((f"{PARTS}/{part.name}", int(mask.sum())) for part, mask in zip(parts, kept, strict=True))
    index = Index(tuple(shard for shard in shards if shard[1]), read_index(parts[0]).shape)
    files.write_index(resume.folder, torch.cat(assignment), torch.cat(kept), index, setting)
    tables = (rows for rows in chunk_tables(resume) if rows.num_rows)
    write_samples(resume.folder, tables, setting)
