"""The runner: an attack in memory, or in a folder where finished chunks are saved and a stopped run resumes.

The samples of a chunk finish together, so that a resumed run sends the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

import errno
import math
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rlab.core.attack import Attack
from rlab.data.batch import Samples, summarise_losses
from rlab.data.source import Loss
from rlab.errors import DataError, FolderError, Notice, OptionError
from rlab.filters import check_palette
from rlab.filters.palette import FreePixels
from rlab.learning.simulator import SIMULATOR
from rlab.progress import Progress, quiet
from rlab.results.kept import Keep
from rlab.results.result import AttackResult
from rlab.results.rows import with_losses
from rlab.runs.chunk_work import SentChunk, attack_in_memory, built, each_chunk, send_chunk, write_chunk
from rlab.runs.executor import Executor, InProcess, MakeWork, Workers
from rlab.runs.fingerprint import check_resumable, data_fingerprint, inputs_of
from rlab.runs.joined import FinishedRows, chunk_tables, join_chunks, left_out, samples_of
from rlab.runs.learn import learn_first
from rlab.runs.messages import HandOut
from rlab.runs.options import AttackOptions
from rlab.storage import files
from rlab.storage.config import write_config
from rlab.storage.ledger import PARTS
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim

Chunks = dict[str, slice]  # rows of the data, by the chunk's key
WORK, LEAST = 2**24, 8  # values times queries that take seconds on a CPU; fewest samples of a chunk


def run_attack(
    recipe: Attack | AttackOptions,
    victim: Victim,
    samples: Samples,
    folder: Path | None = None,
    config: Mapping[str, Any] | None = None,
    progress: Progress = quiet,
    workers: Workers | None = None,
    keep: Keep = "everything",
) -> AttackResult:
    """Attack the samples, in memory or in `folder`, where a stopped run resumes; workers need the attack's options.

    `config` is the configuration as plain values; `keep` says which inputs the folder stores.
    """
    learns = isinstance(recipe, AttackOptions) and isinstance(recipe.learn, int)
    lesson = recipe if isinstance(recipe, AttackOptions) and learns else None
    attack = built(recipe if lesson is None else lesson.model_copy(update={"learn": None}), samples)
    executor = workers or InProcess(victim)
    job = AttackJob(attack, victim, samples, executor, recipe if workers else attack, progress, keep, lesson)
    return job.in_memory() if folder is None else job.in_folder(folder, config or {})


@dataclass(frozen=True)
class AttackJob:
    """An attack with its victim and samples, and who does the work."""

    attack: Attack
    victim: Victim
    samples: Samples
    executor: Executor
    recipe: Attack | AttackOptions  # the attack, or the options from which workers build it
    progress: Progress
    keep: Keep
    lesson: AttackOptions | None = None  # the options, if a simulator is to be learned first

    @property
    def in_process(self) -> bool:
        return isinstance(self.executor, InProcess)

    def taught(self, folder: Path | None, config: Mapping[str, Any]) -> AttackJob:
        """Return the job with a simulator that is learned now or read from `folder`; itself if there is nothing to learn."""
        if self.lesson is None:
            return self
        simulator = learn_first(self.lesson, self.victim, self.samples, folder, config, self.progress)
        recipe = self.lesson.model_copy(update={"simulator": simulator})
        attack = recipe.build(self.samples)
        return replace(self, attack=attack, recipe=attack if self.in_process else recipe, lesson=None)

    def in_memory(self) -> AttackResult:
        if self.lesson is not None:
            return self.taught(None, {}).in_memory()
        check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
        chunks = {f"chunk-{rows.start:08d}": rows for rows in self.attack.chunks(len(self.samples))}
        parts, lost = dict[str, AttackResult](), list[Loss]()
        work = self._hand_out(attack_in_memory)
        with closing(each_chunk(self.samples, chunks, work)) as finished:
            for key, part, losses in finished:
                lost.extend(losses)
                if part is not None:
                    parts[key], rows = part
                    if not self.in_process:  # rows that reached the workers' copies of the model
                        self.victim.rows.update(rows)
                    self.progress(parts[key])
        if not parts:
            raise DataError(f"none of {len(self.samples)} samples can be read, first {lost[0][0]!r} ({lost[0][1]})")
        return AttackResult.join([parts[key] for key in chunks if key in parts])

    def in_folder(self, folder: Path, config: Mapping[str, Any]) -> AttackResult:
        if self.keep == "assignments" and isinstance(self.attack.palette, FreePixels):
            raise OptionError(
                "the palette 'pixels' cannot be rebuilt from assignments: pass keep='flips' or 'everything'"
            )
        check_resumable(self.victim, config, folder)
        inputs = {"the data": data_fingerprint(self.samples), **inputs_of(self.victim, config)}
        question = {"command": "attack", "chunk": self.attack.chunk, **config, **inputs}
        with open_run(folder, question) as resume, _room(resume, len(self.samples)):
            if not (folder / files.SAMPLES).exists():
                check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
                if self.lesson is not None:
                    _create(resume, config)
                job = self.taught(folder / SIMULATOR, config)
                join_chunks(resume, *job._make_chunks(resume, config))
                if lost := left_out(resume):
                    warnings.warn(summarise_losses(lost), Notice, stacklevel=2)
            resume.finish(files.ARRAYS, files.SAMPLES, parts=self.keep != "assignments")
        return AttackResult.load(folder)

    def _hand_out(self, make: MakeWork, *arguments: Any) -> HandOut:
        """Return the function that hands out chunks; only this process reports progress within a chunk."""
        progress = self.progress if self.in_process else quiet
        return self.executor.hand_out(make, self.recipe, self.samples.y, progress, *arguments)

    def _make_chunks(self, resume: Resume, config: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Run the missing chunks; return the keys of all chunks, and of those that an earlier process finished."""
        keys, todo, saved = self._plan(resume)
        make = send_chunk if isinstance(self.executor, Workers) and self.executor.options.cluster else write_chunk
        hand_out = self._hand_out(make, resume.folder, self.keep)
        agree = partial(_create, resume, config)
        chunks = each_chunk(self.samples, todo, hand_out, resume.begin, lambda key: agree())
        try:
            with closing(chunks):
                for key, part, losses in chunks:
                    if isinstance(part, SentChunk) and part.content:
                        files.write_atomically(resume.part(key), part.content)
                    rows = part.rows if isinstance(part, SentChunk) else part
                    table = with_losses(rows, losses)
                    resume.record(key, "", table, part=rows.num_rows > 0)
                    saved += samples_of(table)
                    self.progress(FinishedRows(table, self.attack.distance, recalled=False))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{saved} of {len(self.samples)} samples are saved in {resume.folder}") from stop
        return keys, [key for key in keys if key not in todo]

    def _plan(self, resume: Resume) -> tuple[list[str], Chunks, int]:
        """Return the keys of all chunks, the chunks still to do, and the number of saved samples."""
        keys, todo, at, saved = list[str](), Chunks(), 0, 0
        size = self.attack.chunk if self.executor.on_gpu else chunk_size(self.attack, self.victim, self.samples)
        finished = sorted(int(key.removeprefix("chunk-")) for key in resume.finished("chunk-"))
        while at < len(self.samples):
            keys.append(f"chunk-{at:08d}")
            later = bisect_left(finished, at)
            if later == len(finished) or finished[later] > at:  # a new chunk ends where a finished one starts
                todo[keys[-1]] = slice(at, min([at + size, len(self.samples), *finished[later : later + 1]]))
                at = todo[keys[-1]].stop
            else:
                rows = resume.recall(keys[-1], "")
                at, saved = at + samples_of(rows), saved + samples_of(rows)
                self.progress(FinishedRows(rows, self.attack.distance, recalled=True))
        return keys, todo, saved


def chunk_size(attack: Attack, victim: Victim, samples: Samples) -> int:
    """Use small chunks on a CPU unless the user sets `chunk`, so that a run saves every few seconds.

    The size depends on the work, never on the clock: a model's last bits depend on the number of rows in a batch. A model
    behind an address gets as many samples as it allows open requests.
    """
    if not attack.paced or victim.device.type != "cpu":
        return attack.chunk
    fitting = WORK // (math.prod(samples.shape) * attack.budget)
    return min(attack.chunk, max(LEAST, victim.concurrency, 2 ** (fitting.bit_length() - 1) if fitting else 0))


@contextmanager
def _room(resume: Resume, samples: int) -> Iterator[None]:
    """Turn a full disk into an error that says what is saved."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        saved = sum(samples_of(rows) for rows in chunk_tables(resume))
        state = f"{saved} of {samples} samples are saved in {resume.folder}"
        raise FolderError(f"{error.strerror}: {state}; free some space and run the same command again") from error


def _create(resume: Resume, config: Mapping[str, Any]) -> None:
    """Create the folder with its configuration before anything else is written."""
    resume.create()
    write_config(resume.folder, config)
    (resume.folder / PARTS).mkdir(exist_ok=True)
