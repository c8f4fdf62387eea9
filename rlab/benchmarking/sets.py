"""The sets against one victim: each chunk is made by an executor, and its rows and files are saved by this process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from rlab.benchmarking.agreement import Agreement, EveryModel
from rlab.benchmarking.chunk import SetGenerator
from rlab.benchmarking.config import BenchmarkOptions, Ladder
from rlab.benchmarking.formats import StoredPalette, make_format
from rlab.benchmarking.ladder_search import LadderSearch, WithMargin, errs
from rlab.benchmarking.placed import FreeGenerator, unit_span
from rlab.benchmarking.sample_files import SampleFiles
from rlab.benchmarking.single import Format, Shape
from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters.palette import refuse_pixels
from rlab.runs.chunk_work import ChunkTask, each_chunk
from rlab.runs.executor import Executor, InProcess
from rlab.runs.messages import Agree, Work
from rlab.storage.config import write_config
from rlab.storage.files import write_atomically
from rlab.storage.resume import Resume
from rlab.victims.base import Victim

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Making:
    """An unfinished benchmark: everything that its sets have in common."""

    resume: Resume
    format: Format
    batch: Batch  # all samples, rounded as the files round them
    config: Mapping[str, Any]
    options: BenchmarkOptions  # with every default filled in
    attack: Attack

    def begin(self) -> None:
        """Create the folder before anything is written into it."""
        self.resume.create()
        write_config(self.resume.folder, self.config)


@dataclass(frozen=True)
class SetPlan:
    """How to make the sets against a victim, without the victim and the samples; workers receive it."""

    name: str  # of the victim
    options: BenchmarkOptions  # with every default filled in
    shape: Shape
    ladder: Ladder  # calibrated
    labels: Tensor  # of all samples
    originals: bool  # whether to write the unchanged samples too

    @property
    def format(self) -> Format:
        assert self.options.format is not None
        return make_format(self.options.format, self.shape)

    def files(self, folder: Path, attack: Attack, chunk: Batch, first: int, begin: Callable[[], None]) -> SampleFiles:
        filters = tuple(entry.filter.name for entry in attack.palette.entries)
        return SampleFiles(folder, self.format, chunk, first, begin, filters)

    def make(self, victim: Victim | None, attack: Attack, files: SampleFiles) -> Rows:
        """Make one chunk; without a victim, place distortions at random."""
        if victim is None:
            return FreeGenerator(files, attack, self.ladder, self.name)(self.originals)
        models = len(victim.members) if isinstance(victim, Agreement) else 1
        attack = replace(attack, goal=EveryModel(attack.goal, models)) if models > 1 else attack
        search = LadderSearch(attack.grid, attack.goal, self.options.steps, unit_span(files.batch))
        generate = SetGenerator(
            files, attack, search, self.ladder, self.name, victim, self.options.tolerance, self.labels, models
        )
        return generate(self.originals)


def stored_attack(batch: Batch, form: Format, options: BenchmarkOptions) -> Attack:
    """The declared attack with a bank rounded as the files round it, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        raise OptionError(
            f"a benchmark needs right and wrong answers: expected goal untargeted or targeted:CLASS and one label per sample, "
            f"got goal {str(attack.goal)!r} and labels of shape {tuple(batch.y.shape)}"
        )
    palette = StoredPalette(attack.palette.entries, form.stored)
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def make_sets(
    making: Making, plan: SetPlan, executor: Executor, chunks: Mapping[str, slice]
) -> Generator[tuple[str, Rows]]:
    """Yield (key, rows) of every chunk: those finished by an earlier run first, then the others as they end."""
    resume, todo = making.resume, dict[str, slice]()
    for key, rows in chunks.items():
        finished = resume.recall(key, "")
        if finished is None:
            todo[key] = rows
        else:
            yield key, finished
    here = isinstance(executor, InProcess)
    hand_out = executor.hand_out(_work, plan, *((making.attack, resume.folder) if here else (None, None)))
    for key, (table, content), _ in each_chunk(making.batch, todo, hand_out, resume.begin, lambda key: making.begin()):
        rows = todo[key]
        files = plan.files(resume.folder, making.attack, making.batch[rows], rows.start, making.begin)
        for row in table:
            if not row["reached"]:  # an interrupted run may have left its file
                files.drop(plan.name, row["level"], row["place"])
        for name, data in content.items():
            (resume.folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(resume.folder / name, data)
        resume.record(key, "", table)
        yield key, table


def _work(victim: Victim | None, plan: SetPlan, attack: Attack | None, folder: Path | None) -> Work:
    """Make chunks: in this process straight into the folder, in a worker (both None) as rows and the content of files."""

    def work(task: ChunkTask, agree: Agree) -> tuple[Rows, dict[str, bytes]]:
        assert task.chunk is not None  # the samples are in memory
        recipe = stored_attack(task.chunk, plan.format, plan.options) if attack is None else attack
        if folder is not None:
            return plan.make(victim, recipe, plan.files(folder, recipe, task.chunk, task.first, agree)), {}
        with TemporaryDirectory() as name:
            own = Path(name)
            table = plan.make(victim, recipe, plan.files(own, recipe, task.chunk, task.first, agree))
            written = [path for path in own.rglob("*") if path.is_file()]
            return table, {path.relative_to(own).as_posix(): path.read_bytes() for path in written}

    return work
