"""Making a benchmark: for every sample the smallest flip, then the levels beyond it, each written, read back and asked again.

Chunk by chunk and victim by victim; a finished chunk is a step of `rlab.runs.resume`, so that a killed run goes on from there
and ends as an unbroken one.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rlab
from rlab.benchmarking.card import write_card
from rlab.benchmarking.chunk import FinishedChunk, SampleFiles, SetGenerator
from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.folder import MANIFEST, METADATA, Benchmark, Manifest, Row
from rlab.benchmarking.formats import Format, Shape, StoredPalette, Wfdb, make_format
from rlab.benchmarking.join import join_levels, label_tables
from rlab.benchmarking.ladder import FLIP, parse_ladder
from rlab.benchmarking.ladder_search import LadderSearch, WithMargin, errs
from rlab.core.attack import Attack
from rlab.core.result import Status
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.filters.palette import bounded
from rlab.options import spec_name
from rlab.progress import Progress, quiet
from rlab.runs import files
from rlab.runs.config import check
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint, model_fingerprint
from rlab.runs.resume import PARTS, Resume
from rlab.victims.base import Victim


class NothingFlipped(InputError):
    """The model held on every sample, so that there is nothing to make a benchmark of."""


def make_benchmark(
    victims: Mapping[str, Victim],
    batch: Batch,
    folder: str | Path,
    options: BenchmarkOptions | None = None,
    progress: Progress = quiet,
    **fields: Any,
) -> Benchmark:
    """Makes the benchmark in `folder`, or goes on with what is there; `fields` are those of `BenchmarkOptions`."""
    check_names(victims)
    wanted = check(BenchmarkOptions, {**dict(options or ()), **fields}, "the benchmark's options")
    batch = balanced(batch, wanted.per_class, wanted.seed)
    wanted, _ = wanted.filled(batch)
    assert wanted.format is not None
    form = make_format(wanted.format, Shape.of(batch))
    batch = replace(batch, x=form.stored(batch.x).contiguous())
    attack = stored_attack(batch, form, wanted)
    config = wanted.plain() if wanted.models else wanted.model_dump(mode="json", exclude={"models"}, exclude_none=True)
    fingerprints = {
        name: model_fingerprint(name, victim, config.get("models", {}).get(name)) for name, victim in victims.items()
    }
    inputs = {"victims": fingerprints, "agent": agent_fingerprint(attack.label), "the data": data_fingerprint(batch)}
    resume = Resume(Path(folder), {"command": "benchmark make", **config, **inputs})
    if not (Path(folder) / METADATA).exists():
        check_palette(attack.palette, batch.x[:4], batch.bounds)
        span = batch.bounds[1] - batch.bounds[0] if bounded(batch.bounds) else 1.0
        search = LadderSearch(attack.policy, attack.grid, attack.goal, attack.budget, wanted.steps, span)
        where, rows = SampleFiles(resume, form, batch, config), list[Row]()
        for number, (name, victim) in enumerate(victims.items()):
            generate = SetGenerator(where, attack, search, parse_ladder(wanted.ladder), name, victim)
            for part in attack.chunks(len(batch)):
                rows += _chunk(resume, generate, number, part, progress)
        _finish(where, attack, wanted, fingerprints, rows)
    return Benchmark.load(folder)


def stored_attack(batch: Batch, form: Format, options: BenchmarkOptions) -> Attack:
    """The declared attack with a bank that is rounded as the files are, and a goal with a lead."""
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        raise InputError(
            f"expected goal untargeted or targeted:CLASS and one label a sample, got goal {str(attack.goal)!r} and labels "
            f"of shape {tuple(batch.y.shape)}: a benchmark is of right and wrong answers"
        )
    palette = StoredPalette(attack.palette.entries, form.stored)
    return replace(attack, palette=palette, goal=WithMargin(attack.goal, options.lead))


def check_names(victims: Mapping[str, Victim]) -> None:
    """Names become folders."""
    if not victims:
        raise InputError("expected at least one model to make the benchmark against, got none")
    for name in victims:
        if not re.fullmatch(r"[\w][\w.+-]*", name) or name in ("originals", "results", PARTS):
            raise InputError(
                f"the model name {name!r} is not valid as a folder: use letters, digits, '-', '_' and '.', "
                f"and not originals, results or {PARTS}"
            )


def balanced(batch: Batch, per_class: int | None, seed: int) -> Batch:
    """`per_class` samples of every class that occurs, drawn with the seed, in the order of the data."""
    if per_class is None:
        return batch
    order = torch.from_numpy(np.random.default_rng(abs(seed)).permutation(len(batch)))
    rows: list[int] = []
    for label in batch.y.unique().tolist():
        drawn = order[batch.y[order] == label][:per_class].tolist()
        if len(drawn) < per_class:
            raise InputError(
                f"expected {per_class} samples of every class, got {len(drawn)} of class {batch.label_name(label)!r}: "
                f"give more data or ask for fewer"
            )
        rows += drawn
    return batch[sorted(rows)]


def _chunk(resume: Resume, generate: SetGenerator, number: int, part: slice, progress: Progress) -> list[Row]:
    """Rows of one chunk of the number-th victim, made now or read back."""
    key = f"chunk-{number:03d}-{part.start:08d}"
    rows: list[Row] = resume.step(key, "", lambda: list[Row](generate(part, originals=number == 0)))
    progress(FinishedChunk(rows))
    return rows


def _finish(
    where: SampleFiles, attack: Attack, options: BenchmarkOptions, victims: Mapping[str, str], rows: Sequence[Row]
) -> None:
    """Rows and card come last; the rows mark the benchmark as whole."""
    folder, form = where.resume.folder, where.format
    flipped = [row for row in rows if row["reached"] and row["victim"]]
    if not flipped:
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        raise NothingFlipped(
            f"nothing to make a benchmark of: none of {tried} attacked samples was flipped within "
            f"{attack.budget} queries; raise the budget or take stronger filters, and name another folder"
        )
    rows = join_levels(folder, rows) if form.joined else rows
    if isinstance(form, Wfdb):
        label_tables(folder, rows)
    manifest = Manifest(
        shape=form.shape,
        storage=form.name,
        classes=where.batch.classes,
        outputs=int(flipped[0]["outputs"]),
        goal=str(attack.goal),
        ladder=options.ladder,
        palette=tuple(spec_name(spec) for spec in options.palette or ()),
        entries=attack.palette.names,
        patch=attack.grid.patch,
        policy=attack.label or str(attack.policy),
        budget=attack.budget,
        steps=options.steps,
        lead=options.lead,
        seed=attack.seed,
        victims=tuple(victims.items()),
        versions=versions(attack.label),
        interrupted=where.resume.interrupted,
        config=where.config,
    )
    whole = Benchmark(folder, manifest, tuple(rows)).with_hash()
    write_card(whole)
    files.write_json(folder / MANIFEST, whole.manifest.plain())
    files.write_rows(folder / METADATA, rows, "")
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def versions(policy: str) -> dict[str, str]:
    """Of the packages, and of the agent where the policy is one."""
    agent = agent_fingerprint(policy)
    numbers = {"rlab": rlab.__version__} | ({"agent": agent} if agent else {})
    for package in ("torch", "numpy", "pillow", "pyarrow", "wfdb", "av"):
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    return numbers
