"""An attack into a folder: finished chunks are kept, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

import errno
import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import yaml
from torch import Tensor

from rlab.core.attack import Attack, Found
from rlab.core.distances import Measure
from rlab.core.kept import Keep, mark, rendered
from rlab.core.result import AttackResult, Status
from rlab.core.rows import losses_of, to_table, with_losses
from rlab.core.trace import tally_of
from rlab.data.batch import Batch, Samples, told_losses
from rlab.data.source import Loss, read_ahead
from rlab.errors import InputError, Notice
from rlab.filters import check_palette
from rlab.filters.palette import FreePixels
from rlab.progress import Progress, Tally, quiet
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.ledger import PARTS
from rlab.runs.names import CONFIG as CONFIG
from rlab.runs.pool import HandOut
from rlab.runs.resume import Resume, open_run
from rlab.runs.tables import write_tables
from rlab.victims.base import PHASES, Victim

Chunks = dict[str, slice]  # of the data, by their keys
Made = Generator[pa.Table]  # of finished chunks
WORK, LEAST = 2**24, 8  # values times queries of a chunk that takes seconds on a CPU; the fewest samples it has


def run_attack(
    attack: Attack,
    victim: Victim,
    batch: Samples,
    folder: Path,
    config: Mapping[str, Any],
    progress: Progress = quiet,
    workers: HandOut | None = None,
    keep: Keep = "everything",
) -> AttackResult:
    """Attacks the samples into `folder`, or goes on with what is there. `config` is what was asked for, as plain values;
    `workers` do it instead of this process; `keep` says of which samples the inputs are stored."""
    if keep == "assignments" and isinstance(attack.palette, FreePixels):
        raise InputError(
            "values of the palette 'pixels' cannot be made again from assignments: keep flips or everything"
        )
    asked = {"command": "attack", "chunk": attack.chunk, **config, "the data": data_fingerprint(batch)}
    with open_run(folder, asked | inputs_of(victim, config)) as resume, _room(resume, len(batch)):
        if not (folder / files.SAMPLES).exists():
            check_palette(attack.palette, batch[:4].x, batch.bounds)
            agree = partial(_create, resume, config)
            if workers is not None:
                make = partial(_hand_out, resume, batch, agree, workers, keep)
            else:
                make = partial(_make_here, resume, attack, victim, batch, agree, progress, keep)
            join_chunks(resume, *_make_chunks(resume, attack, batch, chunk_size(attack, victim, batch), make, progress))
            if lost := left_out(resume):
                warnings.warn(told_losses(lost), Notice, stacklevel=2)
        resume.finish(files.ARRAYS, files.SAMPLES, parts=keep != "assignments")
    return AttackResult.load(folder)


@contextmanager
def _room(resume: Resume, samples: int) -> Iterator[None]:
    """A disk that is full is told of with what is saved."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        saved = sum(samples_of(rows) for rows in chunk_tables(resume))
        told = f"{saved} of {samples} samples are saved in {resume.folder}"
        raise InputError(f"{error.strerror}: {told}; make room, and the same command goes on") from error


def _make_chunks(
    resume: Resume, attack: Attack, batch: Samples, size: int, make: Callable[[Chunks], Made], progress: Progress
) -> tuple[list[str], list[str]]:
    """The keys of all chunks, in order, and of those that an earlier process made; the others are made now: which samples they
    have is settled before."""
    keys, todo, at, saved = list[str](), Chunks(), 0, 0
    finished = sorted(int(key.removeprefix("chunk-")) for key in resume.finished("chunk-"))
    while at < len(batch):
        keys.append(f"chunk-{at:08d}")
        later = bisect_left(finished, at)
        if later == len(finished) or finished[later] > at:  # no chunk reaches into a finished one
            todo[keys[-1]] = slice(at, min([at + size, len(batch), *finished[later : later + 1]]))
            at = todo[keys[-1]].stop
        else:
            rows = resume.recall(keys[-1], "")
            assert rows is not None
            at, saved = at + samples_of(rows), saved + samples_of(rows)
            progress(FinishedRows(rows, attack.distance, recalled=True))
    try:
        with closing(make(todo)) as made:
            for rows in made:
                saved += samples_of(rows)
                progress(FinishedRows(rows, attack.distance, recalled=False))
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{saved} of {len(batch)} samples are saved in {resume.folder}") from stop
    return keys, [key for key in keys if key not in todo]


def _make_here(
    resume: Resume,
    attack: Attack,
    victim: Victim,
    batch: Samples,
    agree: Callable[[], None],
    progress: Progress,
    keep: Keep,
    todo: Chunks,
) -> Made:
    with read_ahead(batch, list(todo.values())) as read:
        for key, rows in todo.items():
            resume.begin(key)
            chunk, losses = read(rows)
            if chunk is None:
                agree()
                made = pa.table({})
            else:
                made = attack_chunk(attack, victim, chunk, rows.start, batch.y, resume.part(key), agree, progress, keep)
            yield _record(resume, key, made, losses)


@dataclass(frozen=True)
class SentChunk:
    """What a worker made of a chunk that does not share the folder: its rows, and the file that they were verified from."""

    rows: pa.Table
    content: bytes  # none where nothing of the chunk could be read


def _hand_out(
    resume: Resume, batch: Samples, agree: Callable[[], None], workers: HandOut, keep: Keep, todo: Chunks
) -> Made:
    lost: dict[str, Sequence[Loss]] = {}
    with read_ahead(batch, list(todo.values())) as read:

        def task(key: str) -> tuple[Batch | None, int, Path, Keep]:
            resume.begin(key)
            chunk, lost[key] = read(todo[key])
            return chunk, todo[key].start, resume.part(key), keep

        with closing(workers({key: partial(task, key) for key in todo}, lambda key: agree())) as parts:
            for key, made in parts:
                if isinstance(made, SentChunk) and made.content:
                    files.write_atomically(resume.part(key), made.content)
                rows = made.rows if isinstance(made, SentChunk) else made
                yield _record(resume, key, rows, lost.pop(key))


def _record(resume: Resume, key: str, rows: pa.Table, losses: Sequence[Loss]) -> pa.Table:
    """The chunk is finished: its rows, and what could not be read of it."""
    table = with_losses(rows, losses)
    resume.record(key, "", table, part=rows.num_rows > 0)
    return table


def chunk_tables(resume: Resume) -> Iterator[pa.Table]:
    """Those of finished chunks, in order."""
    return (rows for _, rows in resume.values("chunk-"))


def samples_of(rows: pa.Table) -> int:
    """With those that could not be read."""
    return int(rows.num_rows) + len(losses_of(rows))


def left_out(resume: Resume) -> list[Loss]:
    """(id, why) of the samples that could not be read."""
    return [loss for rows in chunk_tables(resume) for loss in losses_of(rows)]


def _create(resume: Resume, config: Mapping[str, Any]) -> None:
    """The folder, before something is written into it."""
    resume.create()
    write_config(resume.folder, config)
    (resume.folder / PARTS).mkdir(exist_ok=True)


def attack_chunk(
    attack: Attack,
    victim: Victim,
    chunk: Batch,
    first: int,
    labels: Tensor,
    part: Path,
    agree: Callable[[], None],
    progress: Progress = quiet,
    keep: Keep = "everything",
) -> pa.Table:
    """One chunk's rows, verified from the file its inputs were written to, after `agree`; see `Attack.search`."""
    found = attack.search(victim, chunk, first, labels, progress)
    agree()
    rows = {"everything": torch.arange(len(chunk)), "flips": found.rows, "assignments": found.rows[:0]}[keep]
    kept = torch.zeros(len(chunk), dtype=torch.uint8)
    kept[rows] = 1
    inputs = {name: array[rows] for name, array in found.arrays.items() if name != files.ASSIGNMENT}
    arrays = {files.ASSIGNMENT: found.assignment, files.KEPT: kept, **inputs}
    files.write_arrays(part, arrays, found.setting.to_json())
    return _verified(attack, found, files.read_arrays(part)[0], keep)


def _verified(attack: Attack, found: Found, arrays: Mapping[str, Tensor], keep: Keep) -> pa.Table:
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
    return to_table(attack.verify(found, stored), None if keep == "everything" else marks)


def chunk_size(attack: Attack, victim: Victim, batch: Samples) -> int:
    """Where the user names none: few samples at once on a CPU, where more are no quicker and something should be saved every few
    seconds, but as many as requests may go at once to an address. By the work alone and never by the clock: a model's last
    bits depend on how many rows it gets."""
    if not attack.paced or victim.device.type != "cpu":
        return attack.chunk
    fitting = WORK // (math.prod(batch.shape) * attack.budget)
    return min(attack.chunk, max(LEAST, victim.concurrency, 2 ** (fitting.bit_length() - 1) if fitting else 0))


@dataclass(frozen=True)
class FinishedRows:
    """A chunk, for the progress bar; `recalled` where an earlier process made it."""

    rows: pa.Table
    distance: Measure
    recalled: bool

    def __len__(self) -> int:
        return samples_of(self.rows)

    def tally(self) -> Tally:
        names = ["status", "improved_to", *(f"queries_{phase}" for phase in PHASES[:3])]
        status, best, *queries = (self.rows[name].to_pylist() if self.rows.num_rows else [] for name in names)
        flips = [min(to) for word, to in zip(status, best, strict=True) if word == Status.SUCCEEDED]
        return tally_of(status, flips, sum(map(sum, queries)), self.distance)


def join_chunks(resume: Resume, keys: Sequence[str], recalled: Sequence[str] = ()) -> None:
    """The file of assignments says in which part each sample's inputs are; the rows' file comes last and marks the run as whole.

    Parts that an earlier process wrote, `recalled`, are held against their digests."""
    for key in recalled:
        resume.check_part(key)
    parts = [resume.part(key) for key in keys if resume.part(key).exists()]
    if not parts:
        raise InputError(f"none of the samples can be read: {told_losses(left_out(resume))}")
    assignment, kept, setting = list[Tensor](), list[Tensor](), ""
    for part in parts:
        found, setting = files.read_assignment(part)
        assignment.append(found)
        kept.append(files.read_kept(part))
    shards = tuple((f"{PARTS}/{part.name}", int(own.sum())) for part, own in zip(parts, kept, strict=True))
    index = files.Index(tuple(shard for shard in shards if shard[1]), files.read_index(parts[0]).shape)
    files.write_index(resume.folder, torch.cat(assignment), torch.cat(kept), index, setting)
    tables = (rows for rows in chunk_tables(resume) if rows.num_rows)
    write_tables(resume.folder / files.SAMPLES, tables, setting)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The effective configuration beside the results: a file to start the next run from."""
    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        files.write_text(folder / CONFIG, text)
