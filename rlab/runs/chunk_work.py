"""What is done with one chunk of samples: search, store, read back, verify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import torch
from torch import Tensor

from rlab.core.attack import Attack, SearchOutcome
from rlab.data.batch import Batch
from rlab.progress import Progress
from rlab.results.kept import Keep, mark, rendered
from rlab.results.result import AttackResult
from rlab.results.rows import to_table
from rlab.runs.chunks import ChunkTask
from rlab.runs.options import AttackOptions
from rlab.runs.pool import Agree, Work
from rlab.storage import files
from rlab.storage.ledger import PARTS
from rlab.storage.resume import part_path
from rlab.victims.base import Victim


@dataclass(frozen=True)
class SentChunk:
    """What a worker made of a chunk that does not share the folder: its rows, and the file that they were verified from."""

    rows: pa.Table
    content: bytes  # none where nothing of the chunk could be read


def attack_in_memory(victim: Victim, recipe: Attack | AttackOptions, labels: Tensor, progress: Progress) -> Work:
    """Work on chunks in memory: the result of each, and the rows that reached the model by phase."""

    def work(task: ChunkTask, agree: Agree) -> tuple[AttackResult, Counter[str]] | None:
        if task.chunk is None:
            return None
        attack, before = built(recipe, task.chunk), victim.rows.copy()
        outcome = attack.search(victim, task.chunk, task.first, labels, progress)
        result = AttackResult.of(attack.verify(outcome, outcome.perturbed), outcome.perturbed)
        return result, victim.rows - before

    return work


def write_chunk(
    victim: Victim, recipe: Attack | AttackOptions, labels: Tensor, progress: Progress, folder: Path, keep: Keep
) -> Work:
    """Work on chunks in a folder: each is written, and verified from the file it was written to."""

    def work(task: ChunkTask, agree: Agree) -> pa.Table:
        if task.chunk is None:  # none of its samples can be read
            agree()
            return pa.table({})
        attack = built(recipe, task.chunk)
        outcome = attack.search(victim, task.chunk, task.first, labels, progress)
        agree()
        part = part_path(folder, task.key)
        _write(outcome, part, keep)
        return _verified(attack, outcome, files.read_arrays(part)[0], keep)

    return work


def send_chunk(
    victim: Victim, recipe: Attack | AttackOptions, labels: Tensor, progress: Progress, folder: Path, keep: Keep
) -> Work:
    """The same on another machine: the part is written and verified there, and sent."""

    def work(task: ChunkTask, agree: Agree) -> SentChunk:
        with TemporaryDirectory() as there:
            (Path(there) / PARTS).mkdir()
            rows = write_chunk(victim, recipe, labels, progress, Path(there), keep)(task, agree)
            return SentChunk(rows, b"" if task.chunk is None else part_path(Path(there), task.key).read_bytes())

    return work


def built(recipe: Attack | AttackOptions, chunk: Batch) -> Attack:
    """Workers build the attack from its options; this process has it already."""
    return recipe if isinstance(recipe, Attack) else recipe.build(chunk)


def _write(outcome: SearchOutcome, part: Path, keep: Keep) -> None:
    count = len(outcome.batch)
    rows = {"everything": torch.arange(count), "flips": outcome.rows, "assignments": outcome.rows[:0]}[keep]
    kept = torch.zeros(count, dtype=torch.uint8)
    kept[rows] = 1
    inputs = {name: array[rows] for name, array in outcome.arrays.items() if name != files.ASSIGNMENT}
    arrays = {files.ASSIGNMENT: outcome.assignment, files.KEPT: kept, **inputs}
    files.write_arrays(part, arrays, outcome.setting.to_json())


def _verified(attack: Attack, found: SearchOutcome, arrays: Mapping[str, Tensor], keep: Keep) -> pa.Table:
    """Rows of a chunk, from what was read back of it: inputs, or assignments that make them anew."""
    stored, flips, batch = found.perturbed.clone(), found.rows, found.batch
    stored[arrays[files.KEPT].bool()] = arrays[files.PERTURBED]
    if keep == "assignments":
        again = arrays[files.ASSIGNMENT][flips]
        x, seeds = batch.x[flips], found.seeds[flips]
        stored[flips] = rendered(attack.palette, attack.grid, x, batch.bounds, seeds, again)
    marks = [""] * len(stored)
    for i in flips.tolist() if keep == "assignments" else ():
        marks[i] = mark(stored[i])
    return to_table(AttackResult.of(attack.verify(found, stored), stored), None if keep == "everything" else marks)
