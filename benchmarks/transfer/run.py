"""Sets made against five CIFAR-10 models, what each model does on the others', and how they rank by distance to an error.

python -m benchmarks.transfer                        # run what has no raw file, then write results/transfer.md
python -m benchmarks.transfer --only ranks
python -m benchmarks.transfer --quick                # few images ranked, and benchmarks.labels --quick

The sets are written to runs/transfer, so a stopped run resumes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.labels.run import quick_ratio
from benchmarks.raw import Raw, Store
from benchmarks.tables import section
from benchmarks.transfer.cases import (
    FULL,
    LADDER,
    MADE_AGAINST,
    QUICK,
    RANKED,
    ROBUST,
    SEED,
    SHIFTS,
    VICTIMS,
    Case,
    Size,
    victims,
)  # fmt: skip
from benchmarks.transfer.tables import levels, matrix, ranks_table
from rlab.benchmarking import run_benchmark, verify_benchmark

FOLDER = Path("runs", "transfer")
RULES = """
Sets are 8-bit PNG files; every figure is measured on the files read back. Accuracy is over the samples of a level. Palette
`illuminate@0.2,0.4`, patch 4, ladder `times:1.5,2`, policy `auto`, budget 500 and 30 a level, unless a section says otherwise. The
prior of `auto` was trained with ResNet-20 and the mixer. The tables of uniform corruptions are from rlab 0.3.0, which could make
them: filters over the whole image without a search, at the severity whose mean L2 equals that of the level. The palette was chosen
after trials on up to 100 of these same images, so the comparison with its own filters is not blind; the other table compares
filters that the sets do not use.
"""
RANKS = (
    "Sets made against each of the five models on the first {images} test images, budget {budget}. A sample's distance is the "
    "smallest L2 of its files in all five sets on which a model errs, with 0 if it errs on the original, and at most the reach in "
    "the sets' card. The area is the mean distance over the reach. Intervals draw samples and sets. `cnn_a_mix` is certified "
    "robust against small changes of every value: which model is robust depends on the palette. The small shifts were "
    "chosen after the ranking under light had been seen."
)


def mains(size: Size, place: Path, device: str) -> Raw:
    """The set against ResNet-20, verified, and all models on it and on sets against the others."""
    own = Case(images=size.images, steps=size.steps)
    whole = own.make([MADE_AGAINST], place / f"cifar{size.images}", LADDER, device)
    others = Case(images=100, steps=size.steps).make(VICTIMS[1:], place / "others", "flip", device)
    models = victims(device)
    checked = verify_benchmark(whole, {MADE_AGAINST: models[MADE_AGAINST]})
    about = f"{checked.files:,} files read again: {len(checked.mismatches)} do not hold; ResNet-20 was queried about "
    head = section("Files", f"{about}{checked.asked:,} of them.")
    report = run_benchmark([whole, others], models, seed=SEED)
    by_level, accuracies = levels(report, whole, MADE_AGAINST)
    figures = {"files": checked.files, "verified_mismatches": len(checked.mismatches), "asked": checked.asked}
    return Raw(figures | accuracies, {"sections": [head, by_level, matrix(report)]})


def ranks(size: Size, place: Path, device: str, quick: bool = False) -> Raw:
    """All models ranked by distance for each palette, on sets made against every one of them."""
    parts = [RANKS.format(images=size.others, budget=size.rank_budget)]
    models, figures = victims(device), dict[str, float]({"verified_mismatches": 0})
    for name, case in RANKED.items():
        if quick and name != SHIFTS:
            continue
        chosen = replace(case, images=size.others, budget=size.rank_budget, steps=size.steps)
        made = chosen.make(VICTIMS, place / f"ranked-{name.replace(' ', '-')}", "flip", device)
        figures["verified_mismatches"] += len(verify_benchmark(made, models).mismatches)
        report = run_benchmark([made], models, seed=SEED)
        key = "robust_rank" if name == SHIFTS else f"robust_rank_{name}"
        figures[key] = next(s.rank for s in report.standings if s.model == ROBUST)
        reach = report.areas[0]["reach"]
        title = f"{name[0].upper()}{name[1:]}: `{case.palette}`, patch {case.patch}; the axis ends at {reach:.2f}."
        parts += [title, ranks_table(report)]
    return Raw(figures, {"sections": [section("Ranking by distance", *parts)]})


PARTS: dict[str, Callable[[Size, Path, str], Raw]] = {"main": mains, "ranks": ranks}


def pieces(options: Options) -> Iterator[Piece]:
    for name, part in PARTS.items():
        yield Piece(name, name, vars(FULL), partial(part, FULL, FOLDER))


def sections(store: Store) -> Iterator[str]:
    for name in store.names():
        yield from store.facts(name)["sections"]


def figures(store: Store) -> Figures:
    return merged([store.read(name) for name in store.names()])


def merged(raws: list[Raw]) -> dict[str, Any]:
    found = {name: value for raw in raws for name, value in raw.numbers.items()}
    return found | {"verified_mismatches": sum(raw.numbers["verified_mismatches"] for raw in raws)}


def quick(options: Options) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        ranked = ranks(QUICK, Path(folder), options.device, True)
    return {**ranked.numbers, "label_only_ratio_500": quick_ratio()}


CLAIM = Claim("transfer", "Transfer", __doc__, RULES, quick, pieces, sections, figures, cases=tuple(PARTS))
