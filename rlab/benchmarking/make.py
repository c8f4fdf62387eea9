"""Making a benchmark: for every sample the smallest flip, then the levels beyond it, each written, read back and asked again.

Chunk by chunk and victim by victim; a finished chunk is a step of `rlab.runs.resume`, so that a killed run goes on from there
and ends as an unbroken one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

import rlab
from rlab.benchmarking.chunk import FinishedChunk
from rlab.benchmarking.config import FLIP, BenchmarkOptions, parse_ladder
from rlab.benchmarking.folder import CARD, MANIFEST, METADATA, ORIGINALS, Benchmark, Manifest, Row
from rlab.benchmarking.formats import Format, Shape, Wfdb, make_format
from rlab.benchmarking.ladder_search import LadderSearch, patch_costs
from rlab.benchmarking.sets import SetPlan, hand_out_sets, make_here, stored_attack, unit_span
from rlab.benchmarking.tables import card
from rlab.core.attack import Attack
from rlab.core.result import Status
from rlab.core.rng import sample_seeds
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.options import spec_name
from rlab.progress import Progress, quiet
from rlab.runs import files
from rlab.runs.attack import write_config
from rlab.runs.config import check
from rlab.runs.fingerprint import agent_fingerprint, data_fingerprint, digest, files_of, model_fingerprint
from rlab.runs.ledger import PARTS, advice
from rlab.runs.names import file_name
from rlab.runs.resume import Resume, open_run
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.workers import Crew

_REACH = 32  # samples that tell how far a palette goes


class NothingFlipped(InputError):
    """The model held on every sample, so that there is nothing to make a benchmark of."""


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
    check_names(victims)
    wanted = check(BenchmarkOptions, {**dict(options or ()), **fields}, "the benchmark's options")
    batch = balanced(batch, wanted.per_class, wanted.seed)
    wanted, _ = wanted.filled(batch)
    assert wanted.format is not None
    form = make_format(wanted.format, Shape.of(batch))
    batch = replace(batch, x=form.stored(batch.x).contiguous())
    attack = stored_attack(batch, wanted, form.shape)
    crews = {name: _crew(wanted, name, victim, named) for name, victim in victims.items()}
    config = wanted.plain() if wanted.models else wanted.model_dump(mode="json", exclude={"models"}, exclude_none=True)
    models = config.get("models", {})
    fingerprints = {name: model_fingerprint(name, victim, models.get(name)) for name, victim in victims.items()}
    inputs = {"victims": fingerprints, "agent": agent_fingerprint(attack.label), "the data": data_fingerprint(batch)}
    asked = {"command": "benchmark make", **config, **inputs, **files_of(config)}
    with open_run(Path(folder), asked) as resume:
        if not (Path(folder) / METADATA).exists():
            check_palette(attack.palette, batch.x[:4], batch.bounds)
            rows, begin = list[Row](), partial(_create, resume, config)
            for number, (name, victim) in enumerate(victims.items()):
                plan, crew = SetPlan(name, wanted, form.shape, batch.y, originals=number == 0), crews[name]
                chunks = {f"chunk-{number:03d}-{rows.start:08d}": rows for rows in attack.chunks(len(batch))}
                if crew is None:
                    sets = make_here(plan, resume, begin, attack, victim, batch, chunks)
                else:
                    sets = hand_out_sets(plan, resume, begin, crew, batch, chunks)
                tables = dict[str, list[dict[str, Any]]]()
                with closing(sets):
                    for key, table in sets:
                        tables[key] = table
                        progress(FinishedChunk(table))
                rows += [row for key in chunks for row in tables[key]]
            _write_whole(resume, form, batch, attack, wanted, config, fingerprints, rows)
        resume.finish(MANIFEST, METADATA)
    return Benchmark.load(folder)


def rows_at_most(options: BenchmarkOptions, samples: int) -> int:
    """That each victim is asked for so many samples: to the flip, and to every level besides it."""
    assert options.budget is not None  # filled
    ladder = parse_ladder(options.ladder)
    each = options.budget + options.steps if ladder.kind == "confidence" else LadderSearch.most(options.steps)
    return samples * (options.budget + len(ladder.levels) * each)


def _crew(
    options: BenchmarkOptions, name: str, victim: Victim, named: Mapping[str, ModelOptions] | None
) -> Crew | None:
    model = (named or options.models).get(name)
    if options.shared and model is None:
        raise InputError(f"workers load models by their names, and {name!r} is in memory: leave out the workers")
    return None if model is None else Crew.of(options, model, victim)


def _create(resume: Resume, config: Mapping[str, Any]) -> None:
    resume.create()
    write_config(resume.folder, config)


def palette_reach(attack: Attack, batch: Batch) -> float:
    """The mean L2 of samples with the strongest entry on every patch, of the first few: how far the palette goes, whoever it
    is used against."""
    far = []
    for at, seed in enumerate(sample_seeds(attack.seed, 0, min(_REACH, len(batch))).tolist()):
        bank = attack.palette.bank(batch.x[at : at + 1].contiguous(), batch.bounds, [seed])
        far.append(float(patch_costs(attack.grid, bank, unit_span(batch)).amax(1).sum().sqrt()))
    return sum(far) / len(far)


def check_names(victims: Mapping[str, Victim]) -> None:
    """Names become folders."""
    if not victims:
        raise InputError("expected at least one model to make the benchmark against, got none")
    for name in victims:
        if (valid := file_name(name, (ORIGINALS, "results", PARTS))) != name:
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


def _write_whole(
    resume: Resume, form: Format, batch: Batch, attack: Attack, options: BenchmarkOptions, config: Mapping[str, Any],
    victims: Mapping[str, str], rows: Sequence[Row],
) -> None:  # fmt: skip
    """Rows and card come last; the rows mark the benchmark as whole."""
    folder = resume.folder
    flipped = [row for row in rows if row["reached"] and row["victim"]]
    if not flipped:
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        raise NothingFlipped(
            f"nothing to make a benchmark of: none of {tried} attacked samples was flipped within "
            f"{attack.budget} queries; raise the budget or take stronger filters, and name another folder"
        )
    rows = _join_levels(folder, rows) if form.joined else rows
    if isinstance(form, Wfdb):
        for parent, members in _by_folder(rows).items():
            labels = [{"record": PurePosixPath(row["file"]).stem, "label": row["label"]} for row in members]
            files.write_csv(folder / parent / "labels.csv", labels)
    manifest = Manifest(
        shape=form.shape, storage=form.name, classes=batch.classes, outputs=int(flipped[0]["outputs"]),
        goal=str(attack.goal), ladder=options.ladder, palette=tuple(map(spec_name, options.palette or ())),
        entries=attack.palette.names, patch=attack.grid.patch, policy=attack.label or str(attack.policy),
        budget=attack.budget, steps=options.steps, lead=options.lead, seed=attack.seed, victims=tuple(victims.items()),
        versions=versions(attack.label), interrupted=resume.interrupted, config=config,
        reach=options.reach or palette_reach(attack, batch),
    )  # fmt: skip
    whole = Benchmark(folder, manifest, tuple(rows)).with_hash()
    files.write_text(folder / CARD, card(whole))
    files.write_json(folder / MANIFEST, whole.manifest.plain())
    files.write_rows(folder / METADATA, rows, "")


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


def _join_levels(folder: Path, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Parts become VICTIM/LEVEL.npz with x, y and ids; rows say which file and row they are in. Parts stay for now."""
    joined = [dict(row) for row in rows]
    for parent, members in _by_folder(joined).items():
        whole = PurePosixPath(f"{parent.relative_to(PARTS)}.npz")
        (folder / whole).parent.mkdir(parents=True, exist_ok=True)
        x = np.stack([_part(folder, row) for row in members])
        y, ids = (np.array([row[key] for row in members]) for key in ("label", "id"))
        with files.replacing(folder / whole) as file:
            np.savez(file, x=x, y=y, ids=ids)
        for number, row in enumerate(members):
            row |= {"file": whole.as_posix(), "row": number}
    return joined


def _part(folder: Path, row: Row) -> Any:
    """A sample that a chunk wrote; refused where it is not what the chunk wrote."""
    try:
        values = np.load(folder / row["file"], allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {folder / row['file']}: {error}. {advice(folder)}") from error
    if digest(torch.from_numpy(values).float(), length=64) != row["sha256"]:
        raise InputError(f"{folder / row['file']} is damaged: it is not what was written. {advice(folder)}")
    return values


def _by_folder(rows: Sequence[Any]) -> dict[PurePosixPath, list[Any]]:
    """The rows that have a file, by the folder it lies in."""
    groups = defaultdict(list)
    for row in rows:
        if row["file"]:
            groups[PurePosixPath(row["file"]).parent].append(row)
    return dict(groups)
