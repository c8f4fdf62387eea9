"""Making a benchmark: for every sample the smallest flip, then the levels beyond it, each written, read back and asked again.

Chunk by chunk and victim by victim; a finished chunk is in the ledger of `rlab.runs.attack`, so that a killed run goes on from
there and ends as an unbroken one.
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
from rlab.benchmarking.chunk import Maker, Work
from rlab.benchmarking.folder import MANIFEST, METADATA, Benchmark, Manifest
from rlab.benchmarking.formats import Format, Npz, Shape, StoredPalette, Wfdb, make_format, usual_format
from rlab.benchmarking.join import join_levels, label_tables
from rlab.benchmarking.ladder import FLIP, Ladder, parse_ladder
from rlab.benchmarking.ladder_search import LadderSearch, WithMargin, errs
from rlab.benchmarking.marks import file_mark, model_mark
from rlab.core import defaults
from rlab.core.attack import Attack
from rlab.core.goals import Goal, parse_goal
from rlab.core.result import Status
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.filters import check_palette
from rlab.filters.palette import Spec, bounded
from rlab.options import make_attack
from rlab.policies.base import Policy
from rlab.progress import Progress, quiet
from rlab.runs import files
from rlab.runs.attack import PARTS, Run, fingerprint
from rlab.victims.base import Victim

LEAD, STEPS = 0.05, 40


class NothingFlipped(InputError):
    """The model held on every sample, so that there is nothing to make a benchmark of."""


def make_benchmark(
    victims: Mapping[str, Victim],
    batch: Batch,
    folder: str | Path,
    *,
    ladder: str | Ladder = Ladder(),  # noqa: B008  # frozen
    goal: str | Goal = "untargeted",
    palette: Sequence[Spec] | None = None,
    patch: int | Sequence[int] | None = None,
    budget: int | None = None,
    steps: int = STEPS,
    policy: str | Policy = defaults.POLICY,
    lead: float = LEAD,
    per_class: int | None = None,
    storage: str | None = None,
    chunk: int | None = None,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    progress: Progress = quiet,
) -> Benchmark:
    """Makes the benchmark in `folder`, or goes on with what is there. `config` is what was asked for, as plain values."""
    chosen = parse_ladder(ladder) if isinstance(ladder, str) else ladder
    wanted = parse_goal(goal) if isinstance(goal, str) else goal
    if not errs(wanted) or batch.y.shape[1:]:
        raise InputError(
            f"expected goal untargeted or targeted:CLASS and one label a sample, got goal {str(wanted)!r} and labels of "
            f"shape {tuple(batch.y.shape)}: a benchmark is of right and wrong answers"
        )
    check_names(victims)
    models = (config or {}).get("models", {})
    marks = {name: model_mark(name, victim, models.get(name)) for name, victim in victims.items()}
    batch = balanced(batch, per_class, seed)
    form = make_format(storage or usual_format(batch, from_files=False), Shape.of(batch))
    batch = replace(batch, x=form.stored(batch.x).contiguous())
    attack = stored_attack(batch, form, WithMargin(wanted, lead), palette, patch, budget, policy, chunk)
    asked = dict(config) if config is not None else _asked(attack, chosen, steps, lead, form, seed)
    given = tuple(_spec_name(spec) for spec in (defaults.palette(batch) if palette is None else palette))
    run = Run(Path(folder), asked, fingerprint({**asked, "victims": marks, "agent": file_mark(attack.label)}, batch))
    if not (Path(folder) / METADATA).exists():
        check_palette(attack.palette, batch.x[:4], batch.bounds)
        span = batch.bounds[1] - batch.bounds[0] if bounded(batch.bounds) else 1.0
        climb = LadderSearch(attack.policy, attack.grid, attack.goal, attack.budget, steps, span)
        work = Work(run, attack, climb, chosen, form, batch, seed)
        _all_chunks(work, victims, progress)
        _finish(work, marks, given, lead, asked)
    return Benchmark.load(folder)


def stored_attack(
    batch: Batch,
    form: Format,
    goal: Goal,
    palette: Sequence[Spec] | None,
    patch: int | Sequence[int] | None,
    budget: int | None,
    policy: str | Policy,
    chunk: int | None,
) -> Attack:
    """An attack whose bank is rounded as the files are."""
    attack = make_attack(batch, palette=palette, patch=patch, goal=goal, budget=budget, policy=policy, chunk=chunk)
    return replace(attack, palette=StoredPalette(attack.palette.entries, form.stored))


def check_names(victims: Mapping[str, Victim]) -> None:
    """Names become folders."""
    if not victims:
        raise InputError("expected at least one model to make the benchmark against, got none")
    for name in victims:
        if not re.fullmatch(r"[\w][\w.+-]*", name) or name in ("originals", "results", PARTS):
            raise InputError(
                f"the model name {name!r} will not do as a folder: use letters, digits, '-', '_' and '.', "
                f"and not originals, results or {PARTS}"
            )


def folder_name(spec: str, taken: Sequence[str] = ()) -> str:
    """'demo:digits' -> 'demo-digits', 'my_models:resnet' -> 'my_models-resnet'; a number tells equal ones apart."""
    base = re.sub(r"[^\w.+-]+", "-", re.sub(r"^https?://([^/@]*@)?", "", spec)).strip("-.") or "model"
    found, count = base, 1
    while found in taken:
        count += 1
        found = f"{base}-{count}"
    return found


def balanced(batch: Batch, per_class: int | None, seed: int) -> Batch:
    """`per_class` samples of every class that occurs, drawn with the seed, in the order of the data."""
    if per_class is None:
        return batch
    order = torch.from_numpy(np.random.default_rng(abs(seed)).permutation(len(batch)))
    rows: list[int] = []
    for label in batch.y.unique().tolist():
        found = order[batch.y[order] == label][:per_class].tolist()
        if len(found) < per_class:
            raise InputError(
                f"expected {per_class} samples of every class, got {len(found)} of class {batch.label_name(label)!r}: "
                f"give more data or ask for fewer"
            )
        rows += found
    return batch[sorted(rows)]


def _all_chunks(work: Work, victims: Mapping[str, Victim], progress: Progress) -> None:
    done = work.run.ledger.finished() if work.run.ledger else set()
    for number, (name, victim) in enumerate(victims.items()):
        maker = Maker(work, number, name, victim)
        for rows in work.attack.chunks(len(work.batch)):
            progress(range(rows.stop - rows.start) if maker.key(rows) in done else maker.make(rows))


def _finish(
    work: Work, marks: Mapping[str, str], palette: tuple[str, ...], lead: float, config: Mapping[str, Any]
) -> None:
    """Rows and card come last; the rows mark the benchmark as whole."""
    ledger, folder = work.run.ledger, work.run.folder
    assert ledger is not None
    rows = ledger.rows()
    made = [row for row in rows if row["reached"] and row["victim"]]
    if not made:
        tried = sum(row["level"] == FLIP and row["status"] != Status.SKIPPED.value for row in rows)
        raise NothingFlipped(
            f"nothing to make a benchmark of: none of {tried} attacked samples was flipped within "
            f"{work.attack.budget} queries; raise the budget or take stronger filters, and name another folder"
        )
    finished = join_levels(folder, rows) if isinstance(work.form, Npz) else rows
    if isinstance(work.form, Wfdb):
        label_tables(folder, finished)
    manifest = Manifest(
        shape=work.form.shape,
        storage=work.form.name,
        classes=work.batch.classes,
        outputs=int(next(row["outputs"] for row in made)),
        goal=str(work.attack.goal),
        ladder=str(work.ladder) if work.ladder.values else "flip",
        palette=palette,
        entries=work.attack.palette.names,
        patch=work.attack.grid.patch,
        policy=work.attack.label or str(work.attack.policy),
        budget=work.attack.budget,
        steps=work.climb.steps,
        lead=lead,
        seed=work.seed,
        victims=tuple(marks.items()),
        versions=versions(work.attack.label),
        interrupted=ledger.interrupted(),
        config=config,
    )
    whole = Benchmark(folder, manifest, tuple(finished)).with_hash()
    write_card(whole)
    files.write_atomically(folder / MANIFEST, whole.manifest.to_json().encode())
    files.write_rows(folder / METADATA, finished, "")
    shutil.rmtree(folder / PARTS, ignore_errors=True)


def versions(policy: str) -> dict[str, str]:
    """Of the packages, and of the agent where the policy is one."""
    found = {"rlab": rlab.__version__}
    if mark := file_mark(policy):
        found["agent"] = mark
    for package in ("torch", "numpy", "pillow", "pyarrow", "wfdb", "av"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _asked(attack: Attack, ladder: Ladder, steps: int, lead: float, form: Format, seed: int) -> dict[str, Any]:
    """What was asked for, where no configuration says it."""
    return {
        "ladder": str(ladder),
        "goal": str(attack.goal),
        "palette": list(attack.palette.names),
        "patch": list(attack.grid.patch),
        "budget": attack.budget,
        "steps": steps,
        "policy": attack.label or str(attack.policy),
        "lead": lead,
        "format": form.name,
        "chunk": attack.chunk,
        "seed": seed,
    }


def _spec_name(spec: Spec) -> str:
    """A palette entry as it can be named again; a function of the caller's own only within its process."""
    return spec if isinstance(spec, str) else f"{getattr(spec, 'name', getattr(spec, '__name__', 'filter'))}"
