"""Making a benchmark: for every sample the smallest flip, then the levels beyond it, each written, read back and asked again.

Chunk by chunk and victim by victim; a finished chunk is a step of `rlab.storage.resume`, so that a killed run goes on from there
and ends as an unbroken one.
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

from rlab.benchmarking.agreement import Agreement
from rlab.benchmarking.chunk import FinishedChunk
from rlab.benchmarking.config import BenchmarkOptions, parse_ladder
from rlab.benchmarking.folder import AGREEMENT, FREE, MANIFEST, METADATA, ORIGINALS, Benchmark, Row
from rlab.benchmarking.formats import make_format
from rlab.benchmarking.ladder_search import LadderSearch
from rlab.benchmarking.placed import calibrated, calibrated_on, palette_reach
from rlab.benchmarking.sets import Making, SetPlan, hand_out_sets, make_here, stored_attack
from rlab.benchmarking.single import Shape
from rlab.benchmarking.whole import Scale, write_whole
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.progress import Progress, quiet
from rlab.runs.executor import Workers
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint, files_of, model_fingerprint
from rlab.storage.config import check
from rlab.storage.ledger import PARTS
from rlab.storage.names import file_name
from rlab.storage.resume import open_run
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions


def make_benchmark(
    victims: Mapping[str, Victim],
    batch: Batch,
    folder: str | Path,
    options: BenchmarkOptions | None = None,
    progress: Progress = quiet,
    named: Mapping[str, ModelOptions] | None = None,
    **fields: Any,
) -> Benchmark:
    """Makes the benchmark in `folder`, or goes on with what is there; `fields` are those of `BenchmarkOptions`.

    `named` are the victims as workers load them, where the options say no models.
    """
    wanted = check(BenchmarkOptions, {**dict(options or ()), **fields}, "the benchmark's options")
    check_targets(wanted, victims)
    check_names(victims)
    if mute := [name for name, victim in victims.items() if victim.tells_labels and wanted.by_confidence]:
        raise InputError(
            f"the model {mute[0]!r} tells only labels, and the ladder {wanted.ladder!r} is of probabilities: take one of "
            "distances, such as times:1.5,2 or severity:1..5"
        )
    batch = balanced(batch, wanted.per_class, wanted.seed)
    wanted, _ = wanted.filled(batch)
    assert wanted.format is not None
    form = make_format(wanted.format, Shape.of(batch))
    batch = replace(batch, x=form.stored(batch.x).contiguous())
    attack = stored_attack(batch, form, wanted)
    crews = {name: _crew(wanted, name, victim, named) for name, victim in victims.items()}
    config = wanted.plain() if wanted.models else wanted.model_dump(mode="json", exclude={"models"}, exclude_none=True)
    models = config.get("models", {})
    fingerprints = {name: model_fingerprint(name, victim, models.get(name)) for name, victim in victims.items()}
    inputs = {"victims": fingerprints, "agent": agent_fingerprint(attack.label), "the data": data_fingerprint(batch)}
    asked = {"command": "benchmark make", **config, **inputs, **files_of(config)}
    with open_run(Path(folder), asked) as resume:
        if not (Path(folder) / METADATA).exists():
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            making = Making(resume, form, batch, config, wanted, attack)
            scale, sets, rows = _scale(making, victims, fingerprints), sets_of(wanted, victims), list[Row]()
            for number, (name, victim) in enumerate(sets.items()):
                plan = SetPlan(name, wanted, form.shape, scale.ladder, batch.y, originals=number == 0)
                chunks = {f"chunk-{number:03d}-{part.start:08d}": part for part in attack.chunks(len(batch))}
                crew, tables = crews.get(name), dict[str, list[dict[str, Any]]]()
                with closing(
                    make_here(making, plan, victim, chunks)
                    if crew is None
                    else hand_out_sets(making, plan, crew, chunks)
                ) as made:
                    for key, table in made:
                        tables[key] = table
                        progress(FinishedChunk(table))
                rows += [row for key in chunks for row in tables[key]]
            known = {AGREEMENT: "+".join(fingerprints.values()), FREE: ""} | fingerprints
            members = tuple(victims) if wanted.sets == AGREEMENT else ()
            write_whole(making, scale, {name: known[name] for name in sets}, members, rows)
        resume.finish(MANIFEST, METADATA)
    return Benchmark.load(folder)


def _crew(
    options: BenchmarkOptions, name: str, victim: Victim, named: Mapping[str, ModelOptions] | None
) -> Workers | None:
    model = (named or options.models).get(name)
    if options.shared and model is None:
        raise InputError(f"workers load models by their names, and {name!r} is in memory: leave out the workers")
    return None if model is None else Workers.of(options, model, victim)


def _scale(making: Making, victims: Mapping[str, Victim], known: Mapping[str, str]) -> Scale:
    """A reference is asked by this process."""
    options, attack, batch = making.options, making.attack, making.batch
    reach, ladder = options.reach or palette_reach(attack, batch), parse_ladder(options.ladder)
    if ladder.kind != "severity":
        return Scale(reach, ladder)
    if (name := options.reference) is None:
        return Scale(reach, calibrated(ladder, reach))
    calibrate = partial(calibrated_on, ladder, reach, name, victims[name], batch, attack)
    steps = making.resume.step("severities", "", calibrate)
    ladder = replace(ladder, distances=tuple(step["l2"] for step in steps))
    return Scale(reach, ladder, f"{name} ({known[name]}), asked {steps[0]['rows']:,} rows")


def sets_of(options: BenchmarkOptions, victims: Mapping[str, Victim]) -> dict[str, Victim | None]:
    """The sets to make, by the names of their folders, and whom each is made against."""
    if options.sets == "each":
        return dict(victims)
    return {AGREEMENT: Agreement(victims)} if options.sets == AGREEMENT else {FREE: None}


def check_targets(options: BenchmarkOptions, victims: Collection[str]) -> None:
    """Refuses sets that cannot be made of these models and this ladder."""
    ladder = parse_ladder(options.ladder)
    if options.reference is not None and (options.reference not in victims or ladder.kind != "severity"):
        raise InputError(
            f"the reference {options.reference!r} is for the ladder severity:1..5 and goes by the name of a model that is given "
            f"({', '.join(victims) or 'none is'}): pass --model {options.reference}=MODEL, or leave it out"
        )
    if options.sets == FREE:
        if not ladder.absolute:
            raise InputError(
                f"a set without a model has no flip: expected a ladder like severity:1..5 or l2:1,2, got {ladder}"
            )
        if further := [name for name in victims if name != options.reference]:
            raise InputError(
                f"no model is asked for a free set, and {further[0]!r} was given: leave it out or name it as reference"
            )
    elif not victims:
        raise InputError(
            "expected at least one model to make the benchmark against, got none: name one, or sets='free'"
        )
    if options.shared and options.sets != "each":
        raise InputError(
            f"workers make sets against one model each, got the sets {options.sets!r}: leave out workers, devices and cluster"
        )
    if options.sets == AGREEMENT and (len(victims) < 2 or options.by_confidence):
        raise InputError(
            f"an agreement is of several models, with a ladder of distances such as times:1.5,2 or severity:1..5, got "
            f"{len(victims)} models and {ladder}"
        )


def rows_at_most(options: BenchmarkOptions, samples: int) -> int:
    """That each victim is asked for so many samples: to the flip, and to every level besides it."""
    assert options.budget is not None  # filled
    if options.sets == FREE:
        return 0
    ladder = parse_ladder(options.ladder)
    each = options.budget + options.steps if ladder.kind == "confidence" else LadderSearch.most(options.steps)
    return samples * (options.budget + len(ladder.levels) * each)


def check_names(victims: Mapping[str, Victim]) -> None:
    """Names become folders."""
    for name in victims:
        if (valid := file_name(name, (ORIGINALS, "results", PARTS, AGREEMENT, FREE))) != name:
            raise InputError(f"the model name {name!r} is not valid as a folder: call it {valid!r}")


def balanced(batch: Batch, per_class: int | None, seed: int) -> Batch:
    """`per_class` samples of every class that occurs, drawn with the seed, in the order of the data."""
    if per_class is None:
        return batch
    order = torch.from_numpy(np.random.default_rng(abs(seed)).permutation(len(batch)))
    rows: list[int] = []
    for label in batch.y.unique().tolist():
        drawn = order[batch.y[order] == label][:per_class].tolist()
        if len(drawn) < per_class:
            few = f"got {len(drawn)} of class {batch.label_name(label)!r}: give more data or ask for fewer"
            raise InputError(f"expected {per_class} samples of every class, {few}")
        rows += drawn
    return batch[sorted(rows)]
