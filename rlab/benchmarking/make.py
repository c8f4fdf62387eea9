"""Make a benchmark: find the smallest flip of every sample, then the levels beyond it, and query each stored file again.

Work proceeds victim by victim and chunk by chunk. A finished chunk is a step of `rlab.storage.resume`: a killed run continues
there and ends with the same files as an uninterrupted one. The files are written once every chunk exists.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from torch import Tensor

from rlab.benchmarking.card import card
from rlab.benchmarking.chunk import PLACED, SetPlan, blank_row, chunk_work
from rlab.benchmarking.config import FLIP, ORIGINAL, ORIGINALS, BenchmarkOptions, Ladder, LadderLevel, parse_ladder
from rlab.benchmarking.folder import Benchmark, queries_of
from rlab.benchmarking.formats import Format, Row, Shape, make_format
from rlab.benchmarking.goals import stored_attack
from rlab.benchmarking.ladder_search import palette_reach
from rlab.benchmarking.manifest import CARD, FREE, MANIFEST, METADATA, Manifest, rows_digest, versions
from rlab.core.attack import Attack
from rlab.core.checks import need_classes
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.results.result import Status
from rlab.runs.chunk_work import chunk_tasks
from rlab.runs.executor import Executor, InProcess, Workers
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.runs.palette_options import spec_name
from rlab.storage import files as stored_files
from rlab.storage.config import check_keywords, write_config
from rlab.storage.contents import Contents
from rlab.storage.names import file_name
from rlab.storage.resume import Resume, open_run
from rlab.storage.run_file import PARTS, check_files
from rlab.storage.steps import check_part
from rlab.victims.base import Victim

_WRITTEN = "written"  # the step that writes the samples


class NothingFlipped(OptionError):
    """No sample was flipped, so there is no benchmark to make; `queries` were sent to the victims."""

    def __init__(self, sentence: str, queries: int = 0) -> None:
        super().__init__(sentence)
        self.queries = queries


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
    check_targets(declared, victims)
    check_names(victims)
    for victim in victims.values():
        need_classes(victim, "benchmark")
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
        if resume.is_finished:
            check_files(resume.folder, MANIFEST, METADATA)
        rows: list[Row] = resume.recall(_WRITTEN, "") or []
        written = bool(rows) and all((resume.folder / row["file"]).exists() for row in rows if row["file"])
        if not (resume.is_finished and written):
            resume.unfinish()
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            reach = declared.reach or palette_reach(attack, batch)
            ladder = parse_ladder(declared.ladder).measured(reach)
            making = _Making(resume, form, batch, config, declared, attack, ladder)
            if not written:
                rows = making.write_samples(making.search(executors, progress))
                resume.record(_WRITTEN, "", rows)
            marks = {FREE: ""} | {name: contents.settled() for name, contents in known.items()}
            making.write_about(reach, {name: marks[name] for name in sets}, rows)
        resume.finish(MANIFEST, METADATA)
    return Benchmark.load(folder)


@dataclass(frozen=True)
class _Making:
    """An unfinished benchmark: everything that its sets have in common."""

    resume: Resume
    format: Format
    batch: Batch  # all samples, rounded as the files round them
    config: Mapping[str, Any]
    options: BenchmarkOptions  # with every default filled in
    attack: Attack
    ladder: Ladder

    def search(self, executors: Mapping[str, Executor], progress: Progress) -> list[Row]:
        """The rows of all sets, in order, without files; the originals are beside the first set."""
        first, *others = (self._set(name, executor, progress) for name, executor in executors.items())
        original = LadderLevel(ORIGINAL, ORIGINAL)
        reached = {"reached": True, **dict.fromkeys(("l0_patches", "l0_values", "l2", "linf"), 0.0)}
        beside = [blank_row(self.batch, at, 0, original) | reached for at in range(len(self.batch))]
        order = (ORIGINAL, *self.ladder.names)
        both = sorted([*beside, *first], key=lambda row: (row["place"], order.index(row["level"])))
        whole = [row for rows in (both, *others) for row in rows]
        if not any(row["reached"] and row["victim"] for row in whole):
            self._refuse(whole)
        return whole

    def _refuse(self, rows: Sequence[Row]) -> NoReturn:
        """Refuse a benchmark without a changed sample."""
        if self.options.sets == FREE:
            raise NothingFlipped(f"no sample reaches a level of {self.options.ladder}: use stronger filters")
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        held = f"none of {tried} attacked samples was flipped within {self.attack.budget} queries, so there is no benchmark"
        raise NothingFlipped(f"{held}: raise the budget or use stronger filters", sum(map(queries_of, rows)))

    def _set(self, name: str, executor: Executor, progress: Progress) -> list[Row]:
        chunks, tables = self._chunks(name), dict[str, list[Row]]()
        for key in chunks:
            table = self.resume.recall(key, "")
            if table is not None and (self.resume.part(key).exists() or not any(row["reached"] for row in table)):
                check_part(self.resume.part(key))
                tables[key] = table
                progress(_tally(table))
        todo = {key: part for key, part in chunks.items() if key not in tables}
        plan = SetPlan(name, self.options, self.format.shape, self.ladder, self.batch.y)
        own = self.attack if isinstance(executor, InProcess) else None
        if todo:
            self.resume.begin()
        with executor.map(chunk_work, (plan, own), chunk_tasks(self.batch, todo)) as finished:
            for key, rows, stored in finished:
                write_config(self.resume.folder, self.config)
                if stored:
                    (part := self.resume.part(key)).parent.mkdir(exist_ok=True)
                    stored_files.write_arrays(part, stored, "")
                self.resume.record(key, "", rows, part=bool(stored))
                tables[key] = rows
                progress(_tally(rows))
        return [row for key in chunks for row in tables[key]]

    def _chunks(self, name: str) -> dict[str, slice]:
        """The chunks of a set by key."""
        return {f"chunk-{name}-{part.start:08d}": part for part in self.attack.chunks(len(self.batch))}

    def write_samples(self, rows: Sequence[Row]) -> list[Row]:
        """Write the samples of every level; the rows with their files."""
        whole, levels = list(rows), defaultdict[Path, list[int]](list)
        for at, row in enumerate(rows):
            if row["reached"]:
                levels[Path(row["victim"], row["level"]) if row["victim"] else Path(ORIGINALS)].append(at)
        for level, places in levels.items():
            folder, some = self.resume.folder, [rows[at] for at in places]
            described = self.format.write(folder / level, some, self._samples(some[0]["victim"], level.name))
            for at, columns in zip(places, described, strict=True):
                whole[at] = {**rows[at], **columns, "file": columns["file"].relative_to(folder).as_posix()}
        return whole

    def _samples(self, victim: str, level: str) -> Iterator[Tensor]:
        """The samples of a level, from what the chunks of its set left."""
        if not victim:
            yield from self.batch.x
        for part in (self.resume.part(key) for key in self._chunks(victim)) if victim else ():
            if part.exists():
                yield from stored_files.read_arrays(part)[0].get(level, ())

    def write_about(self, reach: float, victims: Mapping[str, str], rows: Sequence[Row]) -> None:
        """Write everything but the samples; the rows come last and mark the benchmark as complete.

        `reach` is the end of the distance axis, `victims` are the fingerprints by the name of a set.
        """
        folder, form, attack, options = self.resume.folder, self.format, self.attack, self.options
        outputs = next(row["outputs"] for row in rows if row["reached"] and row["victim"])
        policy = PLACED if options.sets == FREE else attack.label or str(attack.policy)
        manifest = Manifest(
            shape=form.shape, storage=form.name, classes=self.batch.classes, goal=str(attack.goal), ladder=options.ladder,
            outputs=int(outputs or len(self.batch.classes)), policy=policy, budget=attack.budget,
            palette=tuple(map(spec_name, options.palette or ())), entries=attack.palette.names, patch=attack.grid.patch,
            steps=options.steps, lead=options.lead, seed=attack.seed, victims=tuple(victims.items()), reach=reach,
            versions=versions(attack.label), config=self.config, sets=options.sets, distances=self.ladder.distances,
            channels=attack.grid.channels, hash=rows_digest(rows),
        )  # fmt: skip
        stored_files.write_text(folder / CARD, card(Benchmark(folder, manifest, tuple(rows))))
        stored_files.write_json(folder / MANIFEST, asdict(manifest))
        stored_files.write_rows(folder / METADATA, rows, "")


def _tally(table: Sequence[Row]) -> Any:
    """What a chunk adds to the bar; a set without a model has no flips."""
    flips = [row["status"] for row in table if row["level"] == FLIP]
    return tally_of(flips) if flips else {row["place"] for row in table}


def _executor(options: BenchmarkOptions, name: str, victim: Victim | None) -> Executor:
    if not options.shared or victim is None:
        return InProcess(victim)
    if name not in options.models:
        raise OptionError(f"workers load models by name, but {name!r} is an object in memory: leave out the workers")
    return Workers.of(options, options.models[name], victim) or InProcess(victim)


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
