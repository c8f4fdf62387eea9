"""Make a benchmark: find the smallest flip of every sample, then the levels beyond it, and query each stored file again.

Work proceeds victim by victim and chunk by chunk. A finished chunk is a step of `rlab.storage.resume`: a killed run continues
there and ends with the same files as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlab.benchmarking.card import card
from rlab.benchmarking.chunk import ChunkRows, Rows, SetPlan, Stored, blank_row, search_chunk
from rlab.benchmarking.config import FLIP, ORIGINAL, ORIGINALS, BenchmarkOptions, Ladder, parse_ladder
from rlab.benchmarking.folder import Benchmark, queries_of
from rlab.benchmarking.formats import Joined, Parquet, make_format
from rlab.benchmarking.goals import stored_attack
from rlab.benchmarking.manifest import CARD, FREE, MANIFEST, METADATA, Manifest, Row, rows_digest
from rlab.benchmarking.placed import PLACED, palette_reach, place_chunk, with_distances
from rlab.benchmarking.single import Format, Shape, Single
from rlab.benchmarking.whole import NothingFlipped, join_levels, versions, write_labels, write_sample
from rlab.core.attack import Attack
from rlab.core.checks import need_classes
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.results.result import Status
from rlab.runs.chunk_work import ChunkTask, chunk_tasks
from rlab.runs.executor import Executor, InProcess, Workers
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.palette_options import spec_name
from rlab.runs.worker import Work
from rlab.storage import files as stored_files
from rlab.storage.config import check_keywords, write_config
from rlab.storage.contents import Contents
from rlab.storage.digest import digest
from rlab.storage.names import file_name
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS, check_files
from rlab.storage.steps import check_part
from rlab.victims.base import Victim


def make_benchmark(
    victims: Mapping[str, Victim],
    batch: Batch,
    folder: str | Path,
    options: BenchmarkOptions | None = None,
    progress: Progress = quiet,
    **fields: Any,
) -> Benchmark:
    """Make the benchmark in `folder`, or continue it; `fields` override those of `options`.

    The options' `models` say how workers load the victims, and with `data` how the folder can be made again.
    """
    declared = check_keywords(make_benchmark, BenchmarkOptions, {**dict(options or ()), **fields})
    _check_sets(declared, victims)
    batch = balanced(batch, declared.per_class, declared.seed)
    declared, _ = declared.filled(batch)
    assert declared.format is not None
    form = make_format(declared.format, Shape.of(batch))
    batch = replace(batch, x=form.stored(batch.x).contiguous())
    attack = stored_attack(batch, form, declared)
    sets: dict[str, Victim | None] = {FREE: None} if declared.sets == FREE else dict(victims)  # by folder name
    executors = {name: _executor(declared, name, victim) for name, victim in sets.items()}
    named = declared.data is not None and set(declared.models) == set(victims)
    unknown = None if named else {"models", "data"}
    config = declared.model_dump(mode="json", exclude=unknown, exclude_none=True)
    known = {name: Contents(victim) for name, victim in victims.items()}
    inputs = {"the data": data_fingerprint(batch), "the attack": Contents(attack)}
    inputs |= {f"the model {name}": contents for name, contents in known.items()}
    question = {"command": "benchmark make", **config, **inputs, **named_in(config)}
    with open_run(Path(folder), question, parts=False) as resume:
        if not _is_whole(resume, form):
            resume.unfinish()
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            reach = declared.reach or palette_reach(attack, batch)
            ladder = with_distances(parse_ladder(declared.ladder), reach)
            making = _Making(resume, form, batch, config, declared, attack, ladder)
            rows = making.all_rows(executors, progress)
            marks = {FREE: ""} | {name: contents.settled() for name, contents in known.items()}
            making.write_whole(reach, {name: marks[name] for name in sets}, rows)
        resume.finish(MANIFEST, METADATA)
    return Benchmark.load(folder)


@dataclass(frozen=True)
class _Making:
    """An unfinished benchmark: everything that its sets have in common."""

    resume: Resume
    format: Single | Joined
    batch: Batch  # all samples, rounded as the files round them
    config: Mapping[str, Any]
    options: BenchmarkOptions  # with every default filled in
    attack: Attack
    ladder: Ladder

    def all_rows(self, executors: Mapping[str, Executor], progress: Progress) -> list[Row]:
        """The rows of all sets, in order; the originals are beside the first set."""
        sets = [
            self._set(number, name, executor, progress) for number, (name, executor) in enumerate(executors.items())
        ]
        order = (ORIGINAL, *self.ladder.names)
        first = sorted(chain(self._originals(), sets[0]), key=lambda row: (row["place"], order.index(row["level"])))
        return list(chain(first, *sets[1:]))

    def _set(self, number: int, name: str, executor: Executor, progress: Progress) -> list[Row]:
        chunks, tables = self._chunks(number), dict[str, list[Row]]()
        for key in chunks:
            if (table := self._finished(key)) is not None:
                tables[key] = table
                progress(_tally(table))
        todo = {key: part for key, part in chunks.items() if key not in tables}
        plan = SetPlan(name, self.options, self.format.shape, self.ladder, self.batch.y)
        own = self.attack if isinstance(executor, InProcess) else None
        if todo:
            self.resume.begin()
        with executor.map(_work, (plan, own), chunk_tasks(self.batch, todo)) as finished:
            for key, rows, stored in finished:
                tables[key] = self._save(key, rows, stored)
                progress(_tally(tables[key]))
        return [row for key in chunks for row in tables[key]]

    def _chunks(self, number: int) -> dict[str, slice]:
        """The chunks of a set by key."""
        return {f"chunk-{number:03d}-{part.start:08d}": part for part in self.attack.chunks(len(self.batch))}

    def _save(self, key: str, rows: Rows, stored: Stored) -> list[Row]:
        """Write the samples of a chunk, and return its rows with their files."""
        folder, form, part = self.resume.folder, self.format, self.resume.part(key)
        write_config(folder, self.config)
        waiting = {level: iter(x) for level, x in stored.items()}
        table: list[Row] = [
            row | (write_sample(folder, form, row, next(waiting[row["level"]])) if row["reached"] else {})
            for row in rows
        ]
        if joined := isinstance(form, Joined) and bool(stored):
            part.parent.mkdir(exist_ok=True)
            stored_files.write_arrays(part, stored, "")
        self.resume.record(key, "", table, part=joined)
        return table

    def _originals(self) -> Iterator[Row]:
        for at, x in enumerate(self.batch.x):
            row = blank_row(self.batch, at, 0, ORIGINAL)
            row |= {"reached": True, **dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0)}
            yield row | write_sample(self.resume.folder, self.format, row, x)

    def _finished(self, key: str) -> list[Row] | None:
        """The rows of a finished chunk, unless one of its files was deleted."""
        table: list[Row] | None = self.resume.recall(key, "")
        if table is None or self.resume.part(key).exists() or _has_files(self.resume.folder, table, self.format):
            return table
        self.resume.drop(key)
        return None

    def write_whole(self, reach: float, victims: Mapping[str, str], rows: Sequence[Row]) -> None:
        """Write everything but the samples; the rows come last and mark the benchmark as complete.

        `reach` is the end of the distance axis, `victims` are the fingerprints by the name of a set.
        """
        folder, form, attack, options = self.resume.folder, self.format, self.attack, self.options
        changed = self._changed(rows)
        if isinstance(form, Joined):
            rows = join_levels(folder, form, rows, dict(zip(victims, self._parts(victims), strict=True)), self.batch.x)
        else:
            write_labels(folder, rows, form)
        packed = {row["file"] for row in rows if row["file"]} if isinstance(form, Parquet) else ()
        policy = PLACED if options.sets == FREE else attack.label or str(attack.policy)
        manifest = Manifest(
            shape=form.shape, storage=form.name, classes=self.batch.classes, goal=str(attack.goal), ladder=options.ladder,
            outputs=int(changed[0]["outputs"] or len(self.batch.classes)), policy=policy, budget=attack.budget,
            palette=tuple(map(spec_name, options.palette or ())), entries=attack.palette.names, patch=attack.grid.patch,
            steps=options.steps, lead=options.lead, seed=attack.seed, victims=tuple(victims.items()), reach=reach,
            versions=versions(attack.label), config=self.config, sets=options.sets, distances=self.ladder.distances,
            containers={file: digest(folder / file, length=64) for file in sorted(packed)},
            channels=attack.grid.channels, hash=rows_digest(rows),
        )  # fmt: skip
        stored_files.write_text(folder / CARD, card(Benchmark(folder, manifest, tuple(rows))))
        stored_files.write_json(folder / MANIFEST, asdict(manifest))
        stored_files.write_rows(folder / METADATA, rows, "")

    def _parts(self, victims: Collection[str]) -> Iterator[list[Path]]:
        """The arrays that the chunks of each set left, checked."""
        for number in range(len(victims)):
            keys = [key for key in self._chunks(number) if self.resume.part(key).exists()]
            for key in keys:
                check_part(self.resume.part(key))
            yield [self.resume.part(key) for key in keys]

    def _changed(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of changed samples; there is no benchmark without one."""
        changed = [row for row in rows if row["reached"] and row["victim"]]
        if changed:
            return changed
        if self.options.sets == FREE:
            raise NothingFlipped(f"no sample reaches a level of {self.options.ladder}: use stronger filters")
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        held = f"none of {tried} attacked samples was flipped within {self.attack.budget} queries, so there is no benchmark"
        raise NothingFlipped(f"{held}: raise the budget or use stronger filters", sum(map(queries_of, rows)))


def _tally(table: Sequence[Row]) -> Any:
    """What a chunk adds to the bar; a set without a model has no flips."""
    flips = [row["status"] for row in table if row["level"] == FLIP]
    return tally_of(flips) if flips else {row["place"] for row in table}


def _work(victim: Victim | None, plan: SetPlan, attack: Attack | None) -> Work:
    """Make the rows of a chunk and what its files will hold; a worker builds the attack (None) from the options."""
    order = plan.ladder.names

    def work(task: ChunkTask) -> tuple[str, Rows, Stored]:
        assert task.batch is not None  # the samples are in memory
        recipe = attack or stored_attack(task.batch, plan.format, plan.options)
        filters = tuple(entry.filter.name for entry in recipe.palette.entries)
        chunk = ChunkRows(plan, task.batch, task.first, filters)
        rows = place_chunk(chunk, recipe) if victim is None else search_chunk(chunk, recipe, victim)
        return task.key, sorted(rows, key=lambda row: (row["place"], order.index(row["level"]))), chunk.stored

    return work


def _is_whole(resume: Resume, form: Format) -> bool:
    """Whether the benchmark is finished and none of its files was deleted since."""
    if not resume.is_finished:
        return False
    check_files(resume.folder, MANIFEST, METADATA)
    return _has_files(resume.folder, stored_files.read_rows(resume.folder / METADATA), form)


def _has_files(folder: Path, rows: Sequence[Row], form: Format) -> bool:
    """Whether every file of the rows exists."""
    return all(
        each.exists() for name in {row["file"] for row in rows if row["file"]} for each in form.files(folder / name)
    )


def _executor(options: BenchmarkOptions, name: str, victim: Victim | None) -> Executor:
    if not options.shared or victim is None:
        return InProcess(victim)
    if name not in options.models:
        raise OptionError(f"workers load models by name, but {name!r} is an object in memory: leave out the workers")
    return Workers.of(options, options.models[name], victim) or InProcess(victim)


def _check_sets(options: BenchmarkOptions, victims: Mapping[str, Victim]) -> None:
    check_targets(options, victims)
    check_names(victims)
    for victim in victims.values():
        need_classes(victim, "benchmark")


def check_targets(options: BenchmarkOptions, victims: Collection[str]) -> None:
    """Refuse sets that these models and this ladder cannot make."""
    ladder = parse_ladder(options.ladder)
    if options.sets == FREE:
        if not ladder.absolute:
            raise OptionError(f"a free set has no flip: expected a ladder such as severity:1..5, got {ladder}")
        if victims:
            raise OptionError(f"a free set queries no model: leave out {next(iter(victims))!r}")
        if options.shared:
            raise OptionError("one process makes a free set: leave out the workers")
    elif not victims:
        raise OptionError("expected at least one model to make the benchmark against: name one, or pass sets='free'")


def check_names(victims: Collection[str]) -> None:
    """Refuse model names that cannot be folder names."""
    for name in victims:
        if (valid := file_name(name, (ORIGINALS, "results", PARTS, FREE))) != name:
            raise OptionError(f"the model name {name!r} cannot be a folder name: call it {valid!r}")


def balanced(batch: Batch, per_class: int | None, seed: int) -> Batch:
    """Draw `per_class` samples of every class in the data, in the order of the data."""
    if per_class is None:
        return batch
    order = torch.from_numpy(np.random.default_rng(abs(seed)).permutation(len(batch)))
    rows: list[int] = []
    for label in batch.y.unique().tolist():
        drawn = order[batch.y[order] == label][:per_class].tolist()
        if len(drawn) < per_class:
            few = f"got {len(drawn)} of class {batch.label_name(label)!r}: provide more data, or lower per_class"
            raise DataError(f"expected {per_class} samples of every class, {few}")
        rows += drawn
    return batch[sorted(rows)]
