"""Verify every file: its hash, its distance from the stored original, and that its victim errs on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.verification import CheckedLevel, Mismatch, Verification
from rlab.core.distances import measure
from rlab.errors import ModelError, OptionError
from rlab.progress import Progress, shown
from rlab.storage.config import check
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model

GradedModel = Victim | ModelOptions | str | Mapping[str, Any]  # a loaded model, or how to load it
CHUNK = 256  # files read and queried at once
_ROUNDING = 1e-4  # relative; other hardware sums in another order


def load_victims(
    models: Mapping[str, GradedModel], benchmark: Benchmark
) -> tuple[dict[str, Victim], dict[str, dict[str, Any]]]:
    """All models, those given by name loaded for inputs like the benchmark's; and how each of these was loaded."""
    victims, configs = dict[str, Victim](), dict[str, dict[str, Any]]()
    for name, model in models.items():
        if isinstance(model, Victim):
            victims[name] = model
            continue
        if not isinstance(model, ModelOptions):
            fields = {"name": model} if isinstance(model, str) else model
            model = check(ModelOptions, fields, f"the model {name!r}")
        victims[name] = load_model(model, benchmark.manifest.shape.bounds)
        configs[name] = model.plain()
    return victims, configs


def verify_benchmark(
    benchmark: Benchmark | str | Path,
    victims: Mapping[str, GradedModel] | None = None,
    progress: Progress | bool = True,
    trust: bool = False,
) -> Verification:
    """Check all files; pass models by their names in the benchmark to check that they still err.

    With `trust`, the models that the folder itself names are loaded too. `progress` is called with the files that were checked;
    True shows a bar, False nothing.
    """
    whole = benchmark if isinstance(benchmark, Benchmark) else Benchmark.load(benchmark)
    named = (whole.named_models if trust else {}) | dict(victims or {})
    if trust and not named:
        raise OptionError(f"{whole.folder} does not say how to load its models: pass --model NAME=MODEL")
    models, _ = load_victims(named, whole)
    if strange := [name for name in models if name not in whole.models]:
        names = f"its victims are {', '.join(whole.models)}" if whole.models else "it was made without a model"
        raise OptionError(f"{whole.folder} was not made against {strange[0]!r}: {names}")
    with shown(progress, sum(bool(row["reached"]) for row in whole.rows), "verifying", "files") as advance:
        levels = _check(whole, models, advance)
    return Verification(tuple(levels), tuple(name for name in whole.models if name not in models))


def _check(whole: Benchmark, models: Mapping[str, Victim], progress: Progress) -> list[CheckedLevel]:
    """Check the originals, then every level of every set."""
    readable, unreadable = _read(whole, whole.originals())
    originals = {row["place"]: x for row, x in readable}
    progress(whole.originals())
    levels = [CheckedLevel("", ORIGINAL, len(whole.originals()), 0, tuple(unreadable))]
    for victim, level, rows in whole.sets():
        asked = {name: models[name] for name in whole.models_of(victim) if name in models}
        before, mismatches = sum(each.rows.total() for each in asked.values()), list[Mismatch]()
        for some in (rows[at : at + CHUNK] for at in range(0, len(rows), CHUNK)):
            pairs, unreadable = _read(whole, some)
            mismatches += unreadable + _wrong_distances(whole, pairs, originals)
            for name, model in asked.items() if pairs else ():
                mismatches += _correct_answers(whole, pairs, name, model)
            progress(some)
        queries = sum(each.rows.total() for each in asked.values()) - before
        levels.append(CheckedLevel(victim, level, len(rows), queries, tuple(mismatches)))
    return levels


def _read(whole: Benchmark, rows: Sequence[Row]) -> tuple[list[tuple[Row, Tensor]], list[Mismatch]]:
    """The rows whose files have the right hash, with their values (c, *size); and the others as mismatches."""
    pairs, mismatches = list[tuple[Row, Tensor]](), list[Mismatch]()
    for row, values in whole.each(rows):
        if isinstance(values, str):
            name = row["file"] if row["row"] is None else f"{row['file']} row {row['row']}"
            mismatches.append(Mismatch(name, values))
        else:
            pairs.append((row, values))
    return pairs, mismatches


def _wrong_distances(
    whole: Benchmark, pairs: Sequence[tuple[Row, Tensor]], originals: Mapping[int, Tensor]
) -> list[Mismatch]:
    pairs = [(row, x) for row, x in pairs if row["place"] in originals]  # the others are mismatches of originals
    if not pairs:
        return []
    x0 = torch.stack([originals[row["place"]] for row, _ in pairs])
    assignment = torch.tensor([row["assignment"] for row, _ in pairs])
    distances = measure(x0, torch.stack([x for _, x in pairs]), assignment, whole.manifest.shape.bounds)
    wrong = []
    for name in ("l2", "linf", "l0_values"):
        for (row, _), is_now in zip(pairs, distances[name].tolist(), strict=True):
            stated = float(row[name])
            if not abs(stated - is_now) <= _ROUNDING * max(abs(stated), 1e-6):
                wrong.append(Mismatch(row["file"], f"its {name} is {is_now:.6g}, but the metadata say {stated:.6g}"))
    return wrong


def _correct_answers(
    whole: Benchmark, pairs: Sequence[tuple[Row, Tensor]], name: str, victim: Victim
) -> list[Mismatch]:
    """Files on which the victim is right, or wrong at a level before the flip; one query each."""
    x = torch.stack([x for _, x in pairs]).to(victim.device)
    scores = victim(x, "verify").cpu()
    check_outputs(whole, victim, "the victim")
    errs = whole.goal.reached(scores, torch.tensor([row["label"] for row, _ in pairs])).tolist()
    near = whole.ladder.names[: whole.ladder.before]
    wrong = [row for (row, _), err in zip(pairs, errs, strict=True) if err == (row["level"] in near)]
    verbs = ("does not err", "errs")
    return [Mismatch(row["file"], f"its victim {name} {verbs[row['level'] in near]} on it") for row in wrong]


def check_outputs(whole: Benchmark, victim: Victim, name: str) -> None:
    """Refuse a model with other classes after its first answer; a set without a model may not know them."""
    few = max(row["label"] for row in whole.originals()) >= (victim.classes or 0)
    if few or whole.manifest.outputs not in (0, victim.classes):
        counts = f"has {victim.classes} classes, but the benchmark {whole.name} has {whole.manifest.outputs}"
        raise ModelError(f"{name} {counts}: use a model with the same classes")
