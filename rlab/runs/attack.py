"""An attack into a folder: finished chunks are kept, and the same command goes on from there.

A chunk's samples are finished together, so that a resumed run asks the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rlab.core.attack import Attack, Found
from rlab.core.distances import Measure
from rlab.core.result import AttackResult, Status, to_rows
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.filters import check_palette
from rlab.progress import Progress, Tally, quiet
from rlab.redact import redact
from rlab.runs import files
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.resume import Resume, open_run
from rlab.victims.base import PHASES, Victim

CONFIG = "config.yaml"
WORK, LEAST = 2**24, 8  # values times queries of a chunk that takes seconds on a CPU; the fewest samples it has


def run_attack(
    attack: Attack, victim: Victim, batch: Batch, folder: Path, config: Mapping[str, Any], progress: Progress = quiet
) -> AttackResult:
    """Attacks the batch into `folder`, or goes on with what is there. `config` is what was asked for, as plain values."""
    asked = {"command": "attack", "chunk": attack.chunk, **config, "the data": data_fingerprint(batch)}
    with open_run(folder, asked | inputs_of(victim, config)) as resume:
        if not (folder / files.SAMPLES).exists():
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            join_chunks(resume, _make_chunks(resume, attack, victim, batch, config, progress))
        resume.finish(files.ARRAYS, files.SAMPLES)
    return AttackResult.load(folder)


def _make_chunks(
    resume: Resume, attack: Attack, victim: Victim, batch: Batch, config: Mapping[str, Any], progress: Progress
) -> list[str]:
    """The keys of all chunks, in order, those that are not finished made now."""
    keys, saved, size = list[str](), 0, chunk_size(attack, victim, batch)
    try:
        while saved < len(batch):
            key = f"chunk-{saved:08d}"
            values = resume.recall(key, "")
            finished = FinishedRows(values or [], attack.distance, recalled=values is not None)
            if values is None:
                rows = slice(saved, _end(resume, saved, min(saved + size, len(batch))))
                search = partial(attack.search, victim, batch[rows], rows.start, batch.y, progress)
                finished = replace(finished, rows=_make_chunk(resume, attack, search, key, config))
            progress(finished)
            keys, saved = [*keys, key], saved + len(finished)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"{saved} of {len(batch)} samples are saved in {resume.folder}") from stop
    return keys


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


def _make_chunk(
    resume: Resume, attack: Attack, search: Callable[[], Found], key: str, config: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One chunk's rows, verified from the file its inputs were written to."""
    part = resume.part(key)

    def make() -> list[dict[str, Any]]:
        found = search()
        resume.create()
        write_config(resume.folder, config)
        part.parent.mkdir(exist_ok=True)
        files.write_arrays(part, found.arrays, found.setting.to_json())
        return to_rows(attack.verify(found, files.read_arrays(part)[0]["perturbed"]))

    return resume.step(key, "", make, part=True)


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
