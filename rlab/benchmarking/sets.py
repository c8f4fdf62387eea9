"""The sets against one victim, chunk by chunk: made by this process, or by workers that send their files to it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
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
from rlab.errors import InputError
from rlab.filters.palette import refuse_pixels
from rlab.runs.executor import Workers
from rlab.runs.messages import Agree, Work
from rlab.storage.config import write_config
from rlab.storage.files import write_atomically
from rlab.storage.resume import Resume
from rlab.victims.base import Victim

Rows = list[dict[str, Any]]
Sets = Generator[tuple[str, Rows]]  # finished chunks with their keys


@dataclass(frozen=True)
class Making:
    """A benchmark in the making: all that its sets have in common."""

    resume: Resume
    format: Format
    batch: Batch  # all samples, as the files hold them
    config: Mapping[str, Any]
    options: BenchmarkOptions  # filled
    attack: Attack

    def begin(self) -> None:
        """The folder, before something is written into it."""
        self.resume.create()
        write_config(self.resume.folder, self.config)


@dataclass(frozen=True)
class SetPlan:
    """How the sets against a victim are made, but for the victim and the samples; it goes to workers."""

    name: str  # the victim's
    options: BenchmarkOptions  # filled
    shape: Shape
    ladder: Ladder  # calibrated
    labels: Tensor  # of all samples
    originals: bool  # whether the untouched samples are written as well

    @property
    def format(self) -> Format:
        assert self.options.format is not None
        return make_format(self.options.format, self.shape)

    def files(self, folder: Path, attack: Attack, chunk: Batch, first: int, begin: Callable[[], None]) -> SampleFiles:
        filters = tuple(entry.filter.name for entry in attack.palette.entries)
        return SampleFiles(folder, self.format, chunk, first, begin, filters)

    def make(self, victim: Victim | None, attack: Attack, files: SampleFiles) -> Rows:
        """One chunk; with no victim, by chance."""
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
    """The declared attack with a bank that is rounded as the files are, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        raise InputError(
            f"expected goal untargeted or targeted:CLASS and one label a sample, got goal {str(attack.goal)!r} and labels "
            f"of shape {tuple(batch.y.shape)}: a benchmark is of right and wrong answers"
        )
    palette = StoredPalette(attack.palette.entries, form.stored)
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def make_here(making: Making, plan: SetPlan, victim: Victim | None, chunks: Mapping[str, slice]) -> Sets:
    for key, rows in chunks.items():
        files = plan.files(making.resume.folder, making.attack, making.batch[rows], rows.start, making.begin)
        yield key, making.resume.step(key, "", partial(plan.make, victim, making.attack, files))


def hand_out_sets(making: Making, plan: SetPlan, crew: Workers, chunks: Mapping[str, slice]) -> Sets:
    """The same by workers; what is finished comes first, then chunks as they end."""
    resume, todo = making.resume, dict[str, slice]()
    for key, rows in chunks.items():
        finished = resume.recall(key, "")
        if finished is None:
            todo[key] = rows
        else:
            yield key, finished

    def task(key: str) -> tuple[Batch, int]:
        resume.begin(key)
        return making.batch[todo[key]], todo[key].start

    made = crew.hand_out(_sending, plan)({key: partial(task, key) for key in todo}, lambda key: making.begin())
    with closing(made):
        for key, (table, content) in made:
            rows = todo[key]
            files = plan.files(resume.folder, making.attack, making.batch[rows], rows.start, making.begin)
            for row in table:
                if not row["reached"]:  # of a try that was interrupted
                    files.drop(plan.name, row["level"], row["place"])
            for name, data in content.items():
                (resume.folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(resume.folder / name, data)
            resume.record(key, "", table)
            yield key, table


def _sending(victim: Victim, plan: SetPlan) -> Work:
    def work(task: tuple[Batch, int], agree: Agree) -> tuple[Rows, dict[str, bytes]]:
        chunk, first = task
        attack = stored_attack(chunk, plan.format, plan.options)
        with TemporaryDirectory() as name:
            folder = Path(name)
            table = plan.make(victim, attack, plan.files(folder, attack, chunk, first, lambda: None))
            agree()
            written = [path for path in folder.rglob("*") if path.is_file()]
            return table, {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}

    return work
