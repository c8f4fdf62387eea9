"""Make a benchmark: find the smallest flip of every sample, then the levels beyond it, and query each stored file again.

Work proceeds victim by victim and chunk by chunk. A finished chunk is a step of `rlab.storage.resume`: a killed run continues
there and ends with the same files as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlab.benchmarking.config import FLIP, ORIGINALS, BenchmarkOptions, Ladder, parse_ladder
from rlab.benchmarking.folder import AGREEMENT, FREE, MANIFEST, METADATA, Benchmark, Row
from rlab.benchmarking.formats import make_format
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.placed import SIXTHS, TRIED, calibrated_on, palette_reach
from rlab.benchmarking.sample_files import SetPlan
from rlab.benchmarking.scores import JOINED
from rlab.benchmarking.sets import Agreement, Making, is_whole, make_sets, stored_attack
from rlab.benchmarking.single import Shape
from rlab.benchmarking.whole import Scale, write_whole
from rlab.core.checks import need_classes
from rlab.core.trace import tally_of
from rlab.data.batch import Batch
from rlab.errors import DataError, ModelError, OptionError
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.runs.executor import Executor, InProcess, Workers
from rlab.runs.fingerprint import data_fingerprint, named_in
from rlab.storage.config import check_keywords
from rlab.storage.contents import Contents
from rlab.storage.ledger import PARTS
from rlab.storage.names import file_name
from rlab.storage.resume import open_run
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
    if declared.sets == AGREEMENT:
        sets = {AGREEMENT: Agreement(victims)}
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
            scale = _scale(making, victims, known)
            rows = _make_rows(making, scale.ladder, executors, progress)
            marks = {name: contents.settled() for name, contents in known.items()}
            prints = {AGREEMENT: JOINED.join(marks.values()), FREE: ""} | marks
            members = tuple(victims) if declared.sets == AGREEMENT else ()
            write_whole(making, scale, {name: prints[name] for name in sets}, members, rows)
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
    if mute := [name for name, victim in victims.items() if victim.tells_labels and options.by_confidence]:
        needs = f"needs probabilities, but the model {mute[0]!r} returns only labels"
        raise ModelError(f"the ladder {options.ladder!r} {needs}: use a ladder of distances such as times:1.5,2")


def _executor(options: BenchmarkOptions, name: str, victim: Victim | None) -> Executor:
    if not options.shared or victim is None:
        return InProcess(victim)
    if name not in options.models:
        raise OptionError(f"workers load models by name, but {name!r} is an object in memory: leave out the workers")
    return Workers.of(options, options.models[name], victim) or InProcess(victim)


def _scale(making: Making, victims: Mapping[str, Victim], known: Mapping[str, Contents]) -> Scale:
    """The calibrated ladder; this process queries the reference model, if there is one."""
    options, attack, batch = making.options, making.attack, making.batch
    reach, ladder = options.reach or palette_reach(attack, batch), parse_ladder(options.ladder)
    if ladder.kind != "severity":
        return Scale(reach, ladder)
    if (name := options.reference) is None:
        return Scale(reach, replace(ladder, distances=tuple(value / SIXTHS * reach for value in ladder.values)))
    calibrate = partial(calibrated_on, ladder, reach, name, victims[name], batch, attack)
    steps = making.resume.step("severities", "", calibrate)
    ladder = replace(ladder, distances=tuple(step["l2"] for step in steps))
    return Scale(reach, ladder, f"{name} ({known[name].mark()}), {steps[0]['rows']:,} queries")


def check_targets(options: BenchmarkOptions, victims: Collection[str]) -> None:
    """Refuse sets that these models and this ladder cannot make."""
    ladder = parse_ladder(options.ladder)
    if options.reference is not None and (options.reference not in victims or ladder.kind != "severity"):
        how = f"pass --model {options.reference}=MODEL and --ladder severity:1..5, or leave it out"
        raise OptionError(f"the reference {options.reference!r} must be a model beside a ladder of severities: {how}")
    if options.sets == FREE:
        if not ladder.absolute:
            raise OptionError(f"a free set has no flip: expected a ladder such as severity:1..5, got {ladder}")
        if further := [name for name in victims if name != options.reference]:
            raise OptionError(f"a free set queries no model: leave out {further[0]!r}, or make it the reference")
    elif not victims:
        raise OptionError("expected at least one model to make the benchmark against: name one, or pass sets='free'")
    if options.shared and options.sets != "each":
        raise OptionError(f"workers make only sets='each', got {options.sets!r}: leave them out, or the option sets")
    if options.sets == AGREEMENT and (len(victims) < 2 or options.by_confidence):
        got = f"got {len(victims)} model(s) and {ladder}"
        raise OptionError(f"sets='agreement' needs several models and a ladder of distances such as times:1.5,2, {got}")


def rows_at_most(options: BenchmarkOptions, samples: int) -> int:
    """Maximum number of queries to each victim: up to the flip, and for every other level."""
    assert options.budget is not None  # defaults are filled in
    if options.sets == FREE:
        return 0
    ladder = parse_ladder(options.ladder)
    each = options.budget + options.steps if ladder.kind == "confidence" else LadderSearch.most(options.steps)
    return samples * (options.budget + len(ladder.levels) * each)


def planned_rows(options: BenchmarkOptions, victims: Collection[str], samples: int) -> dict[str, int]:
    """Maximum number of queries to each victim by name, calibration included."""
    check_targets(options, victims)
    each = rows_at_most(options, samples)
    return {name: each + (samples * (TRIED + 1) if name == options.reference else 0) for name in victims}


def check_names(victims: Mapping[str, Victim]) -> None:
    """Refuse model names that cannot be folder names."""
    for name in victims:
        if (valid := file_name(name, (ORIGINALS, "results", PARTS, AGREEMENT, FREE))) != name:
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
