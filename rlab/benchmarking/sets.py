"""The sets against one victim: each chunk is made by an executor, and its rows and files are saved by this process."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.chunk import make_chunk
from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.goals import WithMargin, errs
from rlab.benchmarking.placed import place_chunk
from rlab.benchmarking.sample_files import Rows, SampleFiles, SetPlan
from rlab.benchmarking.single import Format
from rlab.core.attack import Attack
from rlab.data.batch import Batch
from rlab.errors import ModelError, OptionError
from rlab.filters.palette import Round, refuse_pixels
from rlab.runs.chunk_work import ChunkTask, each_chunk
from rlab.runs.executor import Executor, InProcess
from rlab.runs.messages import Agree, Work
from rlab.storage.config import write_config
from rlab.storage.files import write_atomically
from rlab.storage.resume import Resume
from rlab.victims.base import Victim
from rlab.victims.meter import Charge


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


class Agreement(Victim):
    """Scores (b, m * k) of m models, side by side. Every model answers, and counts, every input."""

    def __init__(self, members: Mapping[str, Victim]) -> None:
        self.members = dict(members)
        first = next(iter(self.members.values()))
        super().__init__(bounds=first.bounds)
        self.device, self._phase = first.device, ""
        for name, member in self.members.items():
            if member.multilabel or member.bounds != first.bounds or member.device != first.device:
                same = "one label per sample, the same bounds and the same device"
                raise ModelError(f"an agreement needs models with {same}, but {name!r} differs from the first")

    def _about(self) -> str:
        return f"the agreement of {', '.join(self.members)}"

    def _count(self, rows: Tensor, times: int = 1, reached: bool = True, *, phase: str, charge: Charge | None) -> None:
        super()._count(rows, times, reached, phase=phase, charge=charge)
        self._phase = phase  # the models count the same rows under it

    def _predict(self, x: Tensor) -> Tensor:
        answers = [member(x, self._phase) for member in self.members.values()]
        counts = {name: answer.shape[1] for name, answer in zip(self.members, answers, strict=True)}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise ModelError(f"expected models with the same number of classes, got {listed}: name models of one task")
        return torch.cat(answers, 1)

    def _scores(self, answer: Tensor) -> Tensor:
        return answer  # log-probabilities already

    def count_classes(self, scores: Tensor) -> int:
        return scores.shape[1] // len(self.members)


def stored_attack(batch: Batch, form: Format, options: BenchmarkOptions) -> Attack:
    """The declared attack with a bank rounded as the files round it, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        got = f"got goal {str(attack.goal)!r} and labels of shape {tuple(batch.y.shape)}"
        raise OptionError(f"expected goal untargeted or targeted:CLASS and one label per sample for a benchmark, {got}")
    palette = replace(attack.palette, rounded=_stored_as(form, attack.palette.rounded))
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def _stored_as(form: Format, rounded: Round | None) -> Round:
    return form.stored if rounded is None else lambda x: form.stored(rounded(x))


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
        files = _files(plan, resume.folder, making.attack, making.batch[rows], rows.start, making.begin)
        for row in table:
            if not row["reached"]:  # an interrupted run may have left its file
                files.drop(row["level"], row["place"] - rows.start)
        for name, data in content.items():
            (resume.folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(resume.folder / name, data)
        resume.record(key, "", table)
        yield key, table


def _files(plan: SetPlan, folder: Path, attack: Attack, chunk: Batch, first: int, begin: Agree) -> SampleFiles:
    return SampleFiles(plan, folder, chunk, first, begin, tuple(entry.filter.name for entry in attack.palette.entries))


def _work(victim: Victim | None, plan: SetPlan, attack: Attack | None, folder: Path | None) -> Work:
    """Make chunks: in this process straight into the folder, in a worker (both None) as rows and the content of files."""

    def make(task: ChunkTask, into: Path, agree: Agree) -> Rows:
        assert task.chunk is not None  # the samples are in memory
        recipe = stored_attack(task.chunk, plan.format, plan.options) if attack is None else attack
        files = _files(plan, into, recipe, task.chunk, task.first, agree)
        if victim is None:
            return place_chunk(files, recipe)
        return make_chunk(files, recipe, victim, len(victim.members) if isinstance(victim, Agreement) else 1)

    def work(task: ChunkTask, agree: Agree) -> tuple[Rows, dict[str, bytes]]:
        if folder is not None:
            return make(task, folder, agree), {}
        with TemporaryDirectory() as name:
            table = make(task, own := Path(name), agree)
            written = [path for path in own.rglob("*") if path.is_file()]
            return table, {path.relative_to(own).as_posix(): path.read_bytes() for path in written}

    return work
