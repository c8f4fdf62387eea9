"""The sets of one victim, chunk by chunk: made by this process, or by workers that send their files to it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from rlab.benchmarking.chunk import SampleFiles, SetGenerator
from rlab.benchmarking.config import BenchmarkOptions, parse_ladder
from rlab.benchmarking.formats import Shape, StoredPalette, make_format
from rlab.benchmarking.ladder_search import LadderSearch, WithMargin, errs
from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters.palette import bounded, refuse_pixels
from rlab.runs.files import write_atomically
from rlab.runs.pool import Agree, Work
from rlab.runs.resume import Resume
from rlab.victims.base import Victim
from rlab.workers import Crew

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class SetPlan:
    """How the sets of a victim are made, but for the victim and the samples."""

    name: str  # the victim's
    options: BenchmarkOptions  # filled
    shape: Shape
    labels: Tensor  # of all samples
    originals: bool  # whether the untouched samples are written as well

    def files(self, folder: Path, chunk: Batch, first: int, begin: Callable[[], None]) -> SampleFiles:
        assert self.options.format is not None
        return SampleFiles(folder, make_format(self.options.format, self.shape), chunk, first, begin)

    def make(self, victim: Victim, attack: Attack, files: SampleFiles) -> Rows:
        search = LadderSearch(attack.grid, attack.goal, self.options.steps, unit_span(files.batch))
        ladder = parse_ladder(self.options.ladder)
        generate = SetGenerator(
            files, attack, search, ladder, self.name, victim, self.options.tolerance, self.labels
        )  # fmt: skip
        return generate(self.originals)


def stored_attack(batch: Batch, options: BenchmarkOptions, shape: Shape) -> Attack:
    """The declared attack with a bank that is rounded as the files are, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        raise InputError(
            f"expected goal untargeted or targeted:CLASS and one label a sample, got goal {str(attack.goal)!r} and labels "
            f"of shape {tuple(batch.y.shape)}: a benchmark is of right and wrong answers"
        )
    assert options.format is not None
    palette = StoredPalette(attack.palette.entries, make_format(options.format, shape).stored)
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def unit_span(batch: Batch) -> float:
    """What one unit of L2 is in the data's values."""
    return batch.bounds[1] - batch.bounds[0] if bounded(batch.bounds) else 1.0


def make_here(
    plan: SetPlan, resume: Resume, begin: Callable[[], None], attack: Attack, victim: Victim, batch: Batch,
    chunks: dict[str, slice],
) -> Generator[tuple[str, Rows]]:  # fmt: skip
    for key, rows in chunks.items():
        files = plan.files(resume.folder, batch[rows], rows.start, begin)
        yield key, resume.step(key, "", partial(plan.make, victim, attack, files))


def hand_out_sets(
    plan: SetPlan, resume: Resume, begin: Callable[[], None], crew: Crew, batch: Batch, chunks: dict[str, slice]
) -> Generator[tuple[str, Rows]]:
    """The same by workers; what is finished comes first, then chunks as they end."""
    todo = dict[str, slice]()
    for key, rows in chunks.items():
        finished = resume.recall(key, "")
        if finished is None:
            todo[key] = rows
        else:
            yield key, finished

    def task(key: str) -> tuple[Batch, int]:
        resume.begin(key)
        return batch[todo[key]], todo[key].start

    made = crew.hand_out(_sending, plan)({key: partial(task, key) for key in todo}, lambda key: begin())
    with closing(made):
        for key, (table, content) in made:
            files = plan.files(resume.folder, batch[todo[key]], todo[key].start, begin)
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
        attack = stored_attack(chunk, plan.options, plan.shape)
        with TemporaryDirectory() as name:
            folder = Path(name)
            table = plan.make(victim, attack, plan.files(folder, chunk, first, lambda: None))
            agree()
            written = [path for path in folder.rglob("*") if path.is_file()]
            return table, {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}

    return work
