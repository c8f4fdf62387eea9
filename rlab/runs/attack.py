"""An attack into a folder: finished chunks are kept, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from rlab.core.attack import Attack
from rlab.core.distances import Measure
from rlab.core.result import AttackResult, Status, to_rows
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.filters import check_palette
from rlab.progress import Progress, Tally, quiet
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.ledger import PARTS
from rlab.runs.pool import HandOut
from rlab.runs.resume import Resume, open_run
from rlab.victims.base import PHASES, Victim

CONFIG = "config.yaml"
Chunks = dict[str, slice]  # of the data, by their keys
Made = Generator[list[dict[str, Any]]]  # rows of finished chunks
WORK, LEAST = 2**24, 8  # values times queries of a chunk that takes seconds on a CPU; the fewest samples it has


def run_attack(
    attack: Attack,
    victim: Victim,
    batch: Batch,
    folder: Path,
    config: Mapping[str, Any],
    progress: Progress = quiet,
    workers: HandOut | None = None,
) -> AttackResult:
    """Attacks the batch into `folder`, or goes on with what is there. `config` is what was asked for, as plain values;
    `workers` do it instead of this process."""
    asked = {"command": "attack", "chunk": attack.chunk, **config, "the data": data_fingerprint(batch)}
    with open_run(folder, asked | inputs_of(victim, config)) as resume:
        if not (folder / files.SAMPLES).exists():
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            agree = partial(_create, resume, config)
            if workers is not None:
                make = partial(_hand_out, resume, batch, agree, workers)
            else:
                make = partial(_make_here, resume, attack, victim, batch, agree, progress)
            join_chunks(resume, _make_chunks(resume, attack, batch, chunk_size(attack, victim, batch), make, progress))
        resume.finish(files.ARRAYS, files.SAMPLES)
    return AttackResult.load(folder)


def _make_chunks(
    resume: Resume, attack: Attack, batch: Batch, size: int, make: Callable[[Chunks], Made], progress: Progress
) -> list[str]:
    """The keys of all chunks, in order, those that are not finished made now: which samples they have is settled before."""
    keys, todo, at, saved = list[str](), Chunks(), 0, 0
    while at < len(batch):
        keys.append(f"chunk-{at:08d}")
        values = resume.recall(keys[-1], "")
        if values is None:
            todo[keys[-1]] = slice(at, _end(resume, at, min(at + size, len(batch))))
            at = todo[keys[-1]].stop
        else:
            at, saved = at + len(values), saved + len(values)
            progress(FinishedRows(values, attack.distance, recalled=True))
    try:
        with closing(make(todo)) as made:
            for rows in made:
                saved += len(rows)
                progress(FinishedRows(rows, attack.distance, recalled=False))
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{saved} of {len(batch)} samples are saved in {resume.folder}") from stop
    return keys


def _make_here(
    resume: Resume,
    attack: Attack,
    victim: Victim,
    batch: Batch,
    agree: Callable[[], None],
    progress: Progress,
    todo: Chunks,
) -> Made:
    for key, rows in todo.items():
        attacked = partial(
            attack_chunk, attack, victim, batch[rows], rows.start, batch.y, resume.part(key), agree, progress
        )
        yield resume.step(key, "", attacked, part=True)


@dataclass(frozen=True)
class SentChunk:
    """What a worker made of a chunk that does not share the folder: its rows, and the file that they were verified from."""

    rows: list[dict[str, Any]]
    content: bytes


def _hand_out(resume: Resume, batch: Batch, agree: Callable[[], None], workers: HandOut, todo: Chunks) -> Made:
    def task(key: str) -> tuple[Batch, int, Path]:
        resume.begin(key)
        return batch[todo[key]], todo[key].start, resume.part(key)

    for key, made in workers({key: partial(task, key) for key in todo}, lambda key: agree()):
        if isinstance(made, SentChunk):
            files.write_atomically(resume.part(key), made.content)
        rows = made.rows if isinstance(made, SentChunk) else made
        resume.record(key, "", rows, part=True)
        yield rows


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
) -> list[dict[str, Any]]:
    """One chunk's rows, verified from the file its inputs were written to, after `agree`; see `Attack.search`."""
    found = attack.search(victim, chunk, first, labels, progress)
    agree()
    files.write_arrays(part, found.arrays, found.setting.to_json())
    return to_rows(attack.verify(found, files.read_arrays(part)[0]["perturbed"]))


def chunk_size(attack: Attack, victim: Victim, batch: Batch) -> int:
    """Where the user names none: few samples at once on a CPU, where more are no quicker and something should be saved every few
    seconds, but as many as requests may go at once to an address. By the work alone and never by the clock: a model's last
    bits depend on how many rows it gets."""
    if not attack.paced or victim.device.type != "cpu":
        return attack.chunk
    fitting = WORK // (batch.x[0].numel() * attack.budget)
    return min(attack.chunk, max(LEAST, victim.concurrency, 2 ** (fitting.bit_length() - 1) if fitting else 0))


def _end(resume: Resume, start: int, end: int) -> int:
    """No chunk reaches into a finished one, which there is behind one that had to be made again."""
    later = [int(key.removeprefix("chunk-")) for (key,) in resume.ask("select key from steps where finished = 1")]
    return min([end, *(first for first in later if first > start)])


@dataclass(frozen=True)
class FinishedRows:
    """A chunk, for the progress bar; `recalled` where an earlier process made it."""

    rows: list[dict[str, Any]]
    distance: Measure
    recalled: bool

    def __len__(self) -> int:
        return len(self.rows)

    def tally(self) -> Tally:
        status, best = [row["status"] for row in self.rows], [row["improved_to"] for row in self.rows]
        flips = [min(to) for word, to in zip(status, best, strict=True) if word == Status.SUCCEEDED]
        queries = sum(row[f"queries_{phase}"] for row in self.rows for phase in PHASES[:3])
        return tally_of(status, flips, queries, self.distance)


def join_chunks(resume: Resume, keys: list[str]) -> None:
    """Parts become the one file of arrays; the rows' file comes last and marks the run as whole."""
    for key in keys:
        resume.check_part(key)
    parts = [resume.part(key) for key in keys]
    files.join_arrays(parts, resume.folder / files.ARRAYS)
    setting = files.read_arrays(parts[0])[1]
    rows = [row for _, kept in resume.values("chunk-") for row in kept]
    files.write_rows(resume.folder / files.SAMPLES, rows, setting)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The effective configuration beside the results: a file to start the next run from."""
    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        files.write_text(folder / CONFIG, text)
