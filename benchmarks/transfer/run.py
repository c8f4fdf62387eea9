"""Sets made against five CIFAR-10 models, what each model does on the others', and how they rank by distance to an error.

python -m benchmarks.transfer                        # run what has no raw file, then write results/transfer.md
python -m benchmarks.transfer --only ranks,confidences
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
from benchmarks.tables import section, table
from benchmarks.transfer.cases import (
    CONFIDENCE,
    CONFIDENCES,
    FULL,
    FURTHER,
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
from benchmarks.transfer.tables import levels, matrix, mean_l2, ranks_table, uniform
from rlab.benchmarking import run_benchmark, verify_benchmark

FOLDER = Path("runs", "transfer")
RULES = """
Sets are 8-bit PNG files; every figure is measured on the files read back. Accuracy is over the samples of a level. Uniform
corruptions are filters over the whole image without a search, at the severity whose mean L2 equals that of the level. The palette
was chosen after trials on up to 100 of these same images, so the comparison with its own filters is not blind; the last table of
uniform corruptions compares filters that the sets do not use. Palette `illuminate@0.2,0.4`, patch 4, ladder `times:1.5,2`, policy
`auto`, budget 500 and 30 a level, unless a section says otherwise. The prior of `auto` was trained with ResNet-20 and the mixer.
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
    further, name = run_benchmark([whole], models, corruptions=FURTHER, seed=SEED), f"{whole.name}/{MADE_AGAINST}"
    graded = [levels(report, whole, MADE_AGAINST), uniform(report, name, True), uniform(further, name, False)]
    figures = {"files": checked.files, "verified_mismatches": len(checked.mismatches), "asked": checked.asked}
    figures |= {key: value for _, each in graded for key, value in each.items()}
    return Raw(figures, {"sections": [head, graded[0][0], matrix(report), graded[1][0], graded[2][0]]})


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
        report = run_benchmark([made], models, corruptions=False, seed=SEED)
        key = "robust_rank" if name == SHIFTS else f"robust_rank_{name}"
        figures[key] = next(s.rank for s in report.standings if s.model == ROBUST)
        reach = report.areas[0]["reach"]
        title = f"{name[0].upper()}{name[1:]}: `{case.palette}`, patch {case.patch}; the axis ends at {reach:.2f}."
        parts += [title, ranks_table(report)]
    return Raw(figures, {"sections": [section("Ranking by distance", *parts)]})


def confidences(size: Size, place: Path, device: str) -> Raw:
    """A set around the flip of ResNet-20: how near its files are to the confidences asked for."""
    case = replace(CONFIDENCE, images=size.confidences, budget=size.confidence_budget, steps=size.steps)
    whole = case.make([MADE_AGAINST], place / "confidences", CONFIDENCES, device)
    checked = verify_benchmark(whole, victims(device, [MADE_AGAINST]))
    rows, missed = [], 0
    for level in whole.ladder.names:
        stored, wanted = whole.stored(MADE_AGAINST, level), whole.of(MADE_AGAINST, level)
        missed += len(wanted) - len(stored)
        sure = [row["probability"] for row in stored]
        flips = {row["place"]: row["l2"] for row in whole.stored(MADE_AGAINST)}
        shares = [row["l2"] / flips[row["place"]] for row in stored if row["place"] in flips]
        beside = f"{sum(shares) / len(shares):.2f}" if shares else "–"
        span = f"{min(sure):.3f}–{max(sure):.3f}" if sure else "–"
        rows.append((level, f"{len(stored)} of {len(wanted)}", mean_l2(whole, level), beside, span))
    about = (
        f"Ladder `{CONFIDENCES}`, palette `{case.palette}`, patch {case.patch}, the first {case.images} test images, "
        f"{case.budget} queries for each level and up to {case.steps} to come near it. A file counts within 0.05 of its level; the "
        f"largest gap is {whole.threshold_error:.3f}. For each sample, no level keeps more distortion than a severer one; means "
        "are over the samples that reached a level."
    )
    body = table("level | reached | mean L2 | L2 over the same sample's flip, mean | confidence of the files", rows)
    figures = {"threshold_error": whole.threshold_error, "thresholds_unreached": missed}
    figures["verified_mismatches"] = len(checked.mismatches)
    return Raw(figures, {"sections": [section("Confidences on both sides of the flip", about, body)]})


PARTS: dict[str, Callable[[Size, Path, str], Raw]] = {"main": mains, "ranks": ranks, "confidences": confidences}


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
        place = Path(folder)
        raws = [ranks(QUICK, place, options.device, True), confidences(QUICK, place, options.device)]
    return merged(raws) | {"label_only_ratio_500": quick_ratio()}


CLAIM = Claim("transfer", "Transfer", __doc__, RULES, quick, pieces, sections, figures, cases=tuple(PARTS))
