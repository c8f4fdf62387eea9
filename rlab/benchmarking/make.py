"""Make a benchmark: find the smallest flip of every sample, then the levels beyond it, and query each stored file again.

Work proceeds victim by victim and chunk by chunk. A finished chunk is a step of `rlab.storage.resume`: a killed run continues
there and ends with the same files as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlab.benchmarking.config import FLIP, ORIGINALS, BenchmarkOptions, Ladder, parse_ladder
from rlab.benchmarking.folder import FREE, MANIFEST, METADATA, Benchmark, Row
from rlab.benchmarking.formats import make_format
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.placed import palette_reach, with_distances
from rlab.benchmarking.sample_files import SetPlan
from rlab.benchmarking.sets import Making, is_whole, make_sets, stored_attack
from rlab.benchmarking.single import Shape
from rlab.benchmarking.whole import write_whole
from rlab.core.checks import need_classes
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.errors import DataError, OptionError
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.runs.executor import Executor, InProcess, Workers
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.storage.config import check_keywords
from rlab.storage.contents import Contents
from rlab.storage.names import file_name
from rlab.storage.resume import open_run
from rlab.storage.run_file import PARTS
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
    _check_models(declared, victims)
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
    known = {name: Contents.of(victim) for name, victim in victims.items()}
    inputs = {"the data": data_fingerprint(batch), "the attack": Contents.of(attack)}
    inputs |= {f"the model {name}": contents for name, contents in known.items()}
    question = {"command": "benchmark make", **config, **inputs, **named_in(config)}
    with open_run(Path(folder), question, parts=False) as resume:
        if not is_whole(resume, form):
            resume.unfinish()
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            making = Making(resume, form, batch, config, declared, attack)
            reach = declared.reach or palette_reach(attack, batch)
            ladder = with_distances(parse_ladder(declared.ladder), reach)
            rows = _make_rows(making, ladder, executors, progress)
            marks = {FREE: ""} | {name: contents.settled() for name, contents in known.items()}
            write_whole(making, ladder, reach, {name: marks[name] for name in sets}, rows)
        resume.finish(MANIFEST, METADATA)
    return Benchmark.load(folder)


def _make_rows(making: Making, ladder: Ladder, executors: Mapping[str, Executor], progress: Progress) -> list[Row]:
    """The rows of all sets, in order; the first set also writes the originals."""
    rows, batch = list[Row](), making.batch
    for number, (name, executor) in enumerate(executors.items()):
        plan = SetPlan(name, making.options, making.format.shape, ladder, batch.y, originals=number == 0)
        chunks = {f"chunk-{number:03d}-{part.start:08d}": part for part in making.attack.chunks(len(batch))}
        tables = dict[str, list[dict[str, Any]]]()
        with closing(make_sets(making, plan, executor, chunks)) as finished:
            for key, table in finished:
                tables[key] = table
                flips = [row["status"] for row in table if row["level"] == FLIP]  # none without a model
                progress(tally_of(flips) if flips else {row["place"] for row in table})
        rows += [row for key in chunks for row in tables[key]]
    return rows


def _check_models(options: BenchmarkOptions, victims: Mapping[str, Victim]) -> None:
    check_targets(options, victims)
    check_names(victims)
    for victim in victims.values():
        need_classes(victim, "benchmark")


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


def rows_at_most(options: BenchmarkOptions, samples: int) -> int:
    """Maximum number of queries to each victim: up to the flip, and for every other level."""
    assert options.budget is not None  # defaults are filled in
    if options.sets == FREE:
        return 0
    return samples * (options.budget + len(parse_ladder(options.ladder).levels) * LadderSearch.most(options.steps))


def planned_rows(options: BenchmarkOptions, victims: Collection[str], samples: int) -> dict[str, int]:
    """Maximum number of queries to each victim by name."""
    check_targets(options, victims)
    return dict.fromkeys(victims, rows_at_most(options, samples))


def check_names(victims: Mapping[str, Victim]) -> None:
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
