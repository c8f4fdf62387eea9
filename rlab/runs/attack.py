"""The runner: an attack in memory, or in a folder where finished chunks are saved and a stopped run resumes.

The samples of a chunk finish together, so that a resumed run sends the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

import errno
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlab.core.attack import Attack
from rlab.data.batch import Samples, summarise_losses
from rlab.data.source import Loss
from rlab.errors import DataError, FolderError, OptionError, give_notice
from rlab.filters import check_palette
from rlab.filters.palette import FreePixels
from rlab.learning.simulator import SIMULATOR, Simulator
from rlab.progress import Progress, Said, quiet
from rlab.results.kept import HeldInputs, Keep
from rlab.results.result import AttackResult
from rlab.results.rows import with_losses
from rlab.runs import chunk_work
from rlab.runs.chunk_work import FinishedRows, SentChunk, built, each_chunk, samples_of
from rlab.runs.executor import Executor, HandOut, InProcess, MakeWork, Workers
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.learn import learn_first
from rlab.runs.options import AttackOptions
from rlab.runs.recheck import check_same_model
from rlab.runs.stages import Stages, check_stages, cut
from rlab.runs.threads import ThreadChoice, Threads
from rlab.storage import files
from rlab.storage.config import write_config
from rlab.storage.journal import count_answers, journal_path
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim

Chunks = dict[str, slice]  # rows of the data, by the chunk's key
Parts = Generator[tuple[str, Any, Sequence[Loss]]]  # key, result, samples that could not be read
WORK, LEAST = 2**24, 8  # values times queries that take seconds on a CPU; fewest samples of a chunk
LARGE, LARGE_WORK = 2**15, 2**26  # values of an input whose batches gain little, and the work of their chunks


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
    options = recipe if isinstance(recipe, AttackOptions) else None
    lesson = options if options is not None and options.learn is not None and not options.learning.stages else None
    attack = built(recipe if lesson is None else lesson.model_copy(update={"learn": None}), samples)
    if options is not None:
        _say_left_out(options)
    if options is not None and options.learning.stages:
        check_stages(options, attack)
    if attack.noisy and isinstance(victim, HttpVictim) and victim.cache is not None:
        raise OptionError("a cache hides how much answers vary: leave out noisy or the cache")
    job = AttackJob(attack, victim, samples, workers or InProcess(victim), options, progress, keep, lesson)
    return job.in_memory() if folder is None else job.in_folder(folder, config or {})


@dataclass(frozen=True)
class AttackJob:
    """An attack with its victim and samples, and who does the work."""

    attack: Attack
    victim: Victim
    samples: Samples
    executor: Executor
    options: AttackOptions | None  # from which workers and stages build the attack
    progress: Progress
    keep: Keep
    lesson: AttackOptions | None = None  # the options, if a simulator is to be learned first
    threads: Threads | None = None  # None: as many as torch uses anyway

    @property
    def in_process(self) -> bool:
        return isinstance(self.executor, InProcess)

    @property
    def elsewhere(self) -> bool:
        """Whether workers do not share the run's folder."""
        return isinstance(self.executor, Workers) and self.executor.options.cluster is not None

    def taught(self, folder: Path, config: Mapping[str, Any]) -> AttackJob:
        """Return the job with a simulator that is learned now or read from `folder`; itself if there is nothing to learn."""
        if self.lesson is None:
            return self
        simulator = learn_first(self.lesson, self.victim, self.samples, folder, config, self.progress)
        recipe = self.lesson.model_copy(update={"simulator": simulator})
        attack = recipe.build(self.samples)
        _say_left_out(recipe)
        return replace(self, attack=attack, options=recipe, lesson=None)

    def in_memory(self) -> AttackResult:
        if self.options is not None and self.options.learn is not None:  # students learn from files
            with TemporaryDirectory() as there:
                result = self._saved(Path(there) / "run", {}, {"command": "attack"})
                return replace(result, inputs=HeldInputs(*result.inputs.all()))
        check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
        chunks = {f"chunk-{rows.start:08d}": rows for rows in self.attack.chunks(len(self.samples))}
        parts, lost = dict[str, AttackResult](), list[Loss]()
        finished = self._attacked(chunks, chunks, None, chunk_work.attack_in_memory)
        with closing(finished):
            for key, part, losses in finished:
                lost.extend(losses)
                if part is not None:
                    parts[key] = part.result
                    self._count(part.rows)
                    self.progress(parts[key])
        if not parts:
            raise DataError(f"none of {len(self.samples)} samples can be read, first {lost[0][0]!r} ({lost[0][1]})")
        return AttackResult.join([parts[key] for key in chunks if key in parts])

    def in_folder(self, folder: Path, config: Mapping[str, Any]) -> AttackResult:
        if self.keep == "assignments" and isinstance(self.attack.palette, FreePixels):
            raise OptionError("assignments do not tell the values of 'pixels': pass keep='flips' or 'everything'")
        inputs = {"the data": data_fingerprint(self.samples), **inputs_of(self.victim, self.attack)}
        return self._saved(folder, config, {"command": "attack", "chunk": self.attack.chunk, **config, **inputs})

    def _saved(self, folder: Path, config: Mapping[str, Any], question: Mapping[str, Any]) -> AttackResult:
        how = {"parts": self.keep != "assignments" or self.learns, "paid": isinstance(self.victim, HttpVictim)}
        with open_run(folder, question, **how, journals=self.learns) as resume, _room(resume, len(self.samples)):
            if not resume.is_finished:
                check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
                resume.create()
                write_config(folder, config)
                (folder / PARTS).mkdir(exist_ok=True)
                job = self.taught(folder / SIMULATOR, config)
                chunk_work.join_chunks(resume, *job._make_chunks(resume))
                if lost := chunk_work.left_out(resume):
                    give_notice(summarise_losses(lost))
            resume.finish(files.ARRAYS, files.SAMPLES)
        return AttackResult.load(folder)

    @property
    def learns(self) -> bool:
        """Whether the run learns from its own answers."""
        return self.options is not None and bool(self.options.learning.stages)

    @property
    def _stages(self) -> list[slice]:
        """The samples of each stage; one stage if the run does not learn."""
        return cut(len(self.samples), self.options.learning.stages if self.options else ())

    def _attacked(self, chunks: Chunks, todo: Chunks, resume: Resume | None, make: MakeWork, *arguments: Any) -> Parts:
        """Attack the chunks in `todo`, with the number of threads that fits, and yield each when it is finished."""
        choice = ThreadChoice(self.options, self.attack, self.executor, self.victim, self.samples)
        with choice.applied(next(iter(todo.values()), None), resume) as (threads, executor):
            job = replace(self, threads=threads, executor=executor)
            yield from job._in_stages(chunks, todo, resume, make, *arguments)

    def _in_stages(self, chunks: Chunks, todo: Chunks, resume: Resume | None, make: MakeWork, *arguments: Any) -> Parts:
        """Attack stage by stage; the students of each but the first learn from the chunks before it."""
        begin = (lambda key: None) if resume is None else resume.begin
        for number, stage in enumerate(self._stages):
            if now := {key: rows for key, rows in todo.items() if stage.start <= rows.start < stage.stop}:
                students = None
                if number and resume is not None:
                    stages = Stages(self.attack, self.victim, self.samples, resume, chunks, self._say)
                    students = stages.students(number, stage.start)
                hand_out = self._hand_out(make, self._recipe(students), *arguments)
                yield from each_chunk(self.samples, now, hand_out, begin, self.threads)

    def _recipe(self, simulator: Simulator | None) -> Attack | AttackOptions:
        """The attack, or the options from which workers build it; with students if the run has learned some."""
        if simulator is None or self.options is None:
            return self.attack if self.in_process or self.options is None else self.options
        taught = self.options.model_copy(update={"simulator": simulator})
        return taught.build(self.samples) if self.in_process else taught

    def _count(self, rows: Counter[str]) -> None:
        """Count rows that reached the workers' copies of the model."""
        if not self.in_process:
            self.victim.rows.update(rows)

    def _say(self, text: str) -> None:
        self.progress(Said(text))

    def _hand_out(self, make: MakeWork, recipe: Attack | AttackOptions, *arguments: Any) -> HandOut:
        """Return the function that hands out chunks; only this process reports progress within a chunk."""
        progress = self.progress if self.in_process else quiet
        return self.executor.hand_out(make, recipe, self.samples.y, progress, *arguments)

    def _make_chunks(self, resume: Resume) -> tuple[list[str], list[str]]:
        """Run the missing chunks; return the keys of all chunks, and of those that an earlier process finished."""
        all_, todo, saved = self._plan(resume)
        make = chunk_work.send_chunk if self.elsewhere else chunk_work.write_chunk
        if todo:
            done = {key: rows for key, rows in all_.items() if key not in todo}
            check_same_model(self.attack, self.victim, self.samples, resume, done)
            if kept := count_answers(resume.folder, done):
                give_notice(f"{kept:,} answers of the stopped run are read back, so their queries are not paid again")
        chunks = self._attacked(all_, todo, resume, make, resume.folder, self.keep, self.learns)
        try:
            with closing(chunks):
                for key, part, losses in chunks:
                    if isinstance(part, SentChunk) and part.content:
                        files.write_atomically(resume.part(key), part.content)
                        if self.learns:
                            files.write_atomically(journal_path(resume.folder, key), part.journal)
                    rows = part.rows if isinstance(part, SentChunk) else part
                    table = with_losses(rows, losses)
                    resume.record(key, "", table, part=rows.num_rows > 0)
                    saved += samples_of(table)
                    self.progress(FinishedRows(table, recalled=False))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{saved} of {len(self.samples)} samples are saved in {resume.folder}") from stop
        return list(all_), [key for key in all_ if key not in todo]

    def _plan(self, resume: Resume) -> tuple[Chunks, Chunks, int]:
        """Return all chunks, the chunks still to do, and the number of saved samples; no chunk crosses a stage's boundary."""
        chunks, todo, at, saved = Chunks(), Chunks(), 0, 0
        size = self.attack.chunk if self.executor.on_gpu else chunk_size(self.attack, self.victim, self.samples)
        finished = sorted(int(key.removeprefix("chunk-")) for key in resume.finished("chunk-"))
        stops = [stage.stop for stage in self._stages]
        while at < len(self.samples):
            key, later = f"chunk-{at:08d}", bisect_left(finished, at)
            if later == len(finished) or finished[later] > at:  # a new chunk ends where a finished one starts
                stop = min([at + size, stops[bisect_right(stops, at)], *finished[later : later + 1]])
                todo[key] = slice(at, stop)
            else:
                rows = resume.recall(key, "")
                stop, saved = at + samples_of(rows), saved + samples_of(rows)
                self.progress(FinishedRows(rows, recalled=True))
            chunks[key], at = slice(at, stop), stop
        return chunks, todo, saved


def _say_left_out(options: AttackOptions) -> None:
    """Say before the first query if the search does without the students."""
    simulator = options.simulator if options.learn is not None else options.read_simulator()
    if isinstance(simulator, Simulator) and simulator.weak:
        advice = "the attack leaves them out; learn with more queries or more inputs"
        give_notice(f"{simulator.weak}: {advice}")


def chunk_size(attack: Attack, victim: Victim, samples: Samples) -> int:
    """Use small chunks on a CPU unless the user sets `chunk`, so that a run saves every few seconds.

    The size depends on the work, never on the clock: a model's last bits depend on the number of rows in a batch. Batches of
    large inputs gain little, so these chunks may be of one sample. A model behind an address gets as many samples as it allows
    open requests.
    """
    if not attack.paced or victim.device.type != "cpu":
        return attack.chunk
    values = math.prod(samples.shape)
    fitting = (WORK if values < LARGE else LARGE_WORK) // (values * attack.budget)
    least = LEAST if values < LARGE else 1
    return min(attack.chunk, max(least, victim.concurrency, 2 ** (fitting.bit_length() - 1) if fitting else 0))


@contextmanager
def _room(resume: Resume, samples: int) -> Iterator[None]:
    """Turn a full disk into an error that says what is saved."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        saved = sum(samples_of(rows) for rows in chunk_work.chunk_tables(resume))
        state = f"{saved} of {samples} samples are saved in {resume.folder}"
        raise FolderError(f"{error.strerror}: {state}; free some space and run the same command again") from error
