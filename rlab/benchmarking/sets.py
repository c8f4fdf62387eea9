"""The sets against one victim: each chunk is made by an executor, and its rows and files are saved by this process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlab.benchmarking.chunk import make_chunk
from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.folder import MANIFEST, METADATA, Row
from rlab.benchmarking.formats import Joined
from rlab.benchmarking.goals import WithMargin, errs
from rlab.benchmarking.placed import place_chunk
from rlab.benchmarking.sample_files import Rows, SampleFiles, SetPlan
from rlab.benchmarking.single import Format
from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters.palette import refuse_pixels
from rlab.runs.chunk_work import ChunkTask, each_chunk
from rlab.runs.executor import Executor, InProcess
from rlab.runs.messages import Work
from rlab.storage.config import write_config
from rlab.storage.files import read_rows, write_atomically
from rlab.storage.resume import Resume
from rlab.storage.run_file import check_files
from rlab.victims.base import Victim


@dataclass(frozen=True)
class Making:
    """An unfinished benchmark: everything that its sets have in common."""

    resume: Resume
    format: Format
    batch: Batch  # all samples, rounded as the files round them
    config: Mapping[str, Any]
    options: BenchmarkOptions  # with every default filled in
    attack: Attack


def stored_attack(batch: Batch, form: Format, options: BenchmarkOptions) -> Attack:
    """The declared attack with a bank rounded as the files round it, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        got = f"got goal {str(attack.goal)!r} and labels of shape {tuple(batch.y.shape)}"
        raise OptionError(f"expected goal untargeted or targeted:CLASS and one label per sample for a benchmark, {got}")
    own = attack.palette.rounded or (lambda x: x)
    palette = replace(attack.palette, rounded=lambda x: form.stored(own(x)))
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def is_whole(resume: Resume, form: Format) -> bool:
    """Whether the benchmark is finished and none of its files was deleted since."""
    if not resume.is_finished:
        return False
    check_files(resume.folder, MANIFEST, METADATA)
    return has_files(resume.folder, read_rows(resume.folder / METADATA), form)


def has_files(folder: Path, rows: Sequence[Row], form: Format) -> bool:
    """Whether every file of the rows exists; the file that a level was joined into stands for its parts."""
    paths = {row["file"] for row in rows if row["file"]}
    missing = [path for path in paths if not all(each.exists() for each in form.files(folder / path))]
    wholes = {form.whole(path) if isinstance(form, Joined) else None for path in missing}
    return all(whole is not None and (folder / whole).exists() for whole in wholes)


def make_sets(
    making: Making, plan: SetPlan, executor: Executor, chunks: Mapping[str, slice]
) -> Generator[tuple[str, Rows]]:
    """Yield (key, rows) of every chunk: those finished by an earlier run first, then the others as they end."""
    resume, todo = making.resume, dict[str, slice]()
    for key, rows in chunks.items():
        finished = resume.recall(key, "")
        if finished is not None and not has_files(resume.folder, finished, making.format):
            resume.drop(key)
            finished = None
        if finished is None:
            todo[key] = rows
        else:
            yield key, finished
    own = making.attack if isinstance(executor, InProcess) else None
    for key, (table, content), _ in each_chunk(making.batch, todo, executor.hand_out(_work, plan, own), resume.begin):
        write_config(resume.folder, making.config)
        for name, data in content.items():
            (resume.folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(resume.folder / name, data)
        resume.record(key, "", table)
        yield key, table


def _work(victim: Victim | None, plan: SetPlan, attack: Attack | None) -> Work:
    """Make the rows of a chunk and the content of its files; a worker builds the attack (None) from the options."""

    def work(task: ChunkTask) -> tuple[Rows, dict[str, bytes]]:
        assert task.chunk is not None  # the samples are in memory
        recipe = attack or stored_attack(task.chunk, plan.format, plan.options)
        filters = tuple(entry.filter.name for entry in recipe.palette.entries)
        with TemporaryDirectory() as name:
            files = SampleFiles(plan, Path(name), task.chunk, task.first, filters)
            table = place_chunk(files, recipe) if victim is None else make_chunk(files, recipe, victim)
            written = [path for path in files.folder.rglob("*") if path.is_file()]
            return table, {path.relative_to(files.folder).as_posix(): path.read_bytes() for path in written}

    return work
