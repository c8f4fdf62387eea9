"""The runner: an attack in memory, or in a folder where finished chunks are saved and a stopped run resumes.

The samples of a chunk finish together, so that a resumed run sends the model exactly the batches an unbroken one would.
"""

from __future__ import annotations

import errno
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
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
from rlab.present.report import REPORT
from rlab.progress import Progress, Said, quiet
from rlab.results.kept import HeldInputs, Keep
from rlab.results.result import AttackResult
from rlab.runs import chunk_work
from rlab.runs.chunk_work import ChunkWork, FinishedChunk, FinishedRows, chunk_tasks, samples_of
from rlab.runs.executor import Executor, InProcess, Workers
from rlab.runs.fingerprint import data_fingerprint, inputs_of
from rlab.runs.learn import learn_first
from rlab.runs.options import AttackOptions
from rlab.runs.recheck import check_same_model
from rlab.runs.stages import Stages, ask_clean, check_stages, cut
from rlab.runs.threads import chosen_threads, use_threads
from rlab.storage import files
from rlab.storage.config import write_config
from rlab.storage.journal import count_answers
from rlab.storage.lock import is_read_only
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim

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
    run = AttackRun(recipe, victim, samples, workers or InProcess(victim), progress, keep)
    with ExitStack() as stack:
        held = folder is None
        if folder is None and run.options is not None and run.options.learn is not None:  # students learn from files
            folder = Path(stack.enter_context(TemporaryDirectory())) / "run"
        with run.opened(folder, {} if held else run.question(config or {}), config or {}):
            for made, chunks in run.stages():
                arguments = (made, samples.y, *run.arguments)
                tasks = chunk_tasks(samples, chunks, run.sent)
                with run.executor.map(ChunkWork, arguments, tasks) as parts:
                    for part in parts:
                        run.take(part)
        result = run.result() if folder is None else AttackResult.load(folder)
        if folder is not None and not (folder / REPORT).exists() and not is_read_only(folder):
            result.write_glance(folder)
        return replace(result, inputs=HeldInputs(*result.inputs.all())) if held and folder else result


class AttackRun:
    """An attack of samples, who does the work, and what is finished of it."""

    def __init__(
        self,
        recipe: Attack | AttackOptions,
        victim: Victim,
        samples: Samples,
        executor: Executor,
        progress: Progress,
        keep: Keep,
    ) -> None:
        self.victim, self.samples, self.executor, self.progress, self.keep = victim, samples, executor, progress, keep
        self.options = recipe if isinstance(recipe, AttackOptions) else None  # from which workers build the attack
        if isinstance(recipe, Attack):
            self.attack = recipe
        else:  # an attack that learns first is built without students, to find mistakes before it learns
            self.attack = recipe.model_copy(update={} if recipe.learning.stages else {"learn": None}).build(samples)
            _say_left_out(recipe)
            if recipe.learning.stages:
                check_stages(recipe, self.attack)
        if self.attack.noisy and isinstance(victim, HttpVictim) and victim.cache is not None:
            raise OptionError("a cache hides how much answers vary: leave out noisy or the cache")
        self.resume: Resume | None = None  # None in memory
        self.chunks, self.todo = dict[str, slice](), dict[str, slice]()  # rows of the data, by the chunk's key
        self.saved = 0  # samples
        self.results, self.losses = dict[str, AttackResult](), list[Loss]()

    @property
    def learns(self) -> bool:
        """Whether the run learns from its own answers."""
        return self.options is not None and bool(self.options.learning.stages)

    @property
    def _stages(self) -> list[slice]:
        """The samples of each stage; one stage if the run does not learn."""
        return cut(len(self.samples), self.options.learning.stages if self.options else ())

    @property
    def sent(self) -> Path | None:
        """The folder whose journals travel to workers on other machines; None if the workers are here."""
        elsewhere = isinstance(self.executor, Workers) and self.executor.options.cluster is not None
        return self.resume.folder if elsewhere and self.resume is not None else None

    @property
    def arguments(self) -> tuple[Progress, Path | None, Keep, bool, bool]:
        """What chunks need besides the attack and the labels; only this process reports progress within a chunk."""
        here = isinstance(self.executor, InProcess)
        folder = None if self.resume is None else self.resume.folder
        return self.progress if here else quiet, folder, self.keep, self.learns, self.sent is not None

    def question(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What decides the results, by which a folder recognises the run."""
        if self.keep == "assignments" and isinstance(self.attack.palette, FreePixels):
            raise OptionError("assignments do not tell the values of 'pixels': pass keep='flips' or 'everything'")
        inputs = {"the data": data_fingerprint(self.samples), **inputs_of(self.victim, self.attack)}
        return {"chunk": self.attack.chunk, **config, **inputs}

    @contextmanager
    def opened(self, folder: Path | None, question: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[None]:
        """Make ready for the chunks inside the block, and join them after it, unless the folder holds a finished run."""
        if folder is None:
            check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
            self._plan(self.attack.chunk, None)
            with self._threads(None):
                yield
            return
        how = {"parts": self.keep != "assignments" or self.learns, "paid": isinstance(self.victim, HttpVictim)}
        with open_run(folder, {"command": "attack", **question}, **how, journals=self.learns) as resume:
            if resume.is_finished:
                yield
            else:
                with self._saying_what_is_saved(folder), self._threads(resume.begun.get("threads")):
                    self._begin(resume, config)
                    yield
                    recalled = [key for key in self.chunks if key not in self.todo]
                    chunk_work.join_chunks(resume, list(self.chunks), recalled)
                    if lost := chunk_work.left_out(resume):
                        give_notice(summarise_losses(lost))
            resume.finish(files.ARRAYS, files.SAMPLES)

    def _begin(self, resume: Resume, config: Mapping[str, Any]) -> None:
        """Make the folder, learn a simulator if the options say so, and check that the model of a stopped run is the same."""
        check_palette(self.attack.palette, self.samples[:4].x, self.samples.bounds)
        resume.create()
        write_config(resume.folder, config)
        for key, rows in resume.values("chunk-"):
            if rows.num_rows and not resume.part(key).exists():
                resume.drop(key)  # its arrays were deleted
        (resume.folder / PARTS).mkdir(exist_ok=True)
        self.resume = resume
        if self.options is not None and self.options.learn is not None and not self.learns:
            folder = resume.folder / SIMULATOR
            simulator = learn_first(self.options, self.victim, self.samples, folder, config, self.progress)
            self.options = self.options.model_copy(update={"simulator": simulator})
            self.attack = self.options.build(self.samples)
            _say_left_out(self.options)
        size = self.attack.chunk if self.executor.on_gpu else chunk_size(self.attack, self.victim, self.samples)
        self._plan(size, resume)
        if self.todo:
            done = {key: rows for key, rows in self.chunks.items() if key not in self.todo}
            check_same_model(self.attack, self.victim, self.samples, resume, done)
            if kept := count_answers(resume.folder, done):
                give_notice(f"{kept:,} answers of the stopped run are read back, so their queries are not paid again")
            resume.begin()

    def _threads(self, begun: str | None) -> AbstractContextManager[None]:
        """Use the number of threads that fits, here and in workers."""
        own = None if self.options is None else self.options.threads
        count = chosen_threads(own, begun, self.victim, self.samples, self.executor)
        if isinstance(self.executor, Workers):
            self.executor = replace(self.executor, threads=count)
        return use_threads(count)

    def stages(self) -> Iterator[tuple[Attack | AttackOptions, dict[str, slice]]]:
        """The attack, or the options from which workers build it, and the chunks of each stage, which has its own students."""
        if self.learns and self.resume is not None:
            self._say(f"querying {len(self.samples):,} untouched inputs, from which students learn first")
            ask_clean(self.victim, chunk_tasks(self.samples, self.todo), self.resume.folder, len(self.attack.grid))
        for number, stage in enumerate(self._stages):
            chunks = {key: rows for key, rows in self.todo.items() if stage.start <= rows.start < stage.stop}
            if not chunks:
                continue
            options, here = self.options, isinstance(self.executor, InProcess)
            made = self.attack if options is None or here else options
            if self.learns and self.resume is not None and options is not None:
                stages = Stages(self.attack, self.victim, self.samples, self.resume, self.chunks, self._say)
                if students := stages.students(number, stage.start):
                    taught = options.model_copy(update={"simulator": students})
                    made = taught.build(self.samples) if here else taught
            yield made, chunks

    def take(self, part: FinishedChunk) -> None:
        """Keep what came of a chunk, in memory or in the folder."""
        if not isinstance(self.executor, InProcess):
            self.victim.rows.update(part.sent)  # the workers have copies of the model
        self.losses.extend(part.losses)
        if self.resume is None:
            if part.result is not None:
                self.results[part.key] = part.result
                self.progress(part.result)
            return
        for name, content in part.files.items():
            files.write_atomically(self.resume.folder / PARTS / name, content)
        table = part.table
        self.resume.record(part.key, "", table, part=part.rows.num_rows > 0)
        self.saved += samples_of(table)
        self.progress(FinishedRows(table, recalled=False))

    def result(self) -> AttackResult:
        """The result of all chunks in memory."""
        if not self.results:
            first, why = self.losses[0]
            raise DataError(f"none of {len(self.samples)} samples can be read, first {first!r} ({why})")
        return AttackResult.join([self.results[key] for key in self.chunks if key in self.results])

    def _say(self, text: str) -> None:
        self.progress(Said(text))

    def _plan(self, size: int, resume: Resume | None) -> None:
        """Choose all chunks and those still to do; no chunk crosses a stage's boundary."""
        at, finished = 0, sorted(int(key.removeprefix("chunk-")) for key in resume.finished("chunk-")) if resume else []
        stops = [stage.stop for stage in self._stages]
        while at < len(self.samples):
            key, later = f"chunk-{at:08d}", bisect_left(finished, at)
            if later == len(finished) or finished[later] > at:  # a new chunk ends where a finished one starts
                stop = min([at + size, stops[bisect_right(stops, at)], *finished[later : later + 1]])
                self.todo[key] = slice(at, stop)
            else:
                rows = resume.recall(key, "") if resume else None
                stop, self.saved = at + samples_of(rows), self.saved + samples_of(rows)
                self.progress(FinishedRows(rows, recalled=True))
            self.chunks[key], at = slice(at, stop), stop

    @contextmanager
    def _saying_what_is_saved(self, folder: Path) -> Iterator[None]:
        """A full disk or a stop becomes an error that says what is saved."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            state = f"{self.saved} of {len(self.samples)} samples are saved in {folder}"
            raise FolderError(f"{error.strerror}: {state}; free some space and run the same command again") from error
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"{self.saved} of {len(self.samples)} samples are saved in {folder}") from stop


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
