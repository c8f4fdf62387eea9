"""Where does the model look? Our map and the methods people use, on three kinds of ground truth.

python -m benchmarks.explain                    # run what has no raw file, then write results/explain.md
python -m benchmarks.explain --page             # write the page from the raw files
python -m benchmarks.explain --device cuda --only pets     # one case, about 10 minutes on a large GPU
python -m benchmarks.explain --quick            # our map on a few of the same samples
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.beats import beats
from benchmarks.data import Absent
from benchmarks.explain import masks, quantus
from benchmarks.explain.belief import interval_coverage, sentence_coverage, within
from benchmarks.explain.cases import CASES, SEED, installed, load_pets
from benchmarks.explain.page import RULES, SENTENCES, figures, read, sections
from benchmarks.harness import Claim, Figures, Options, Piece, circumstances
from benchmarks.raw import RAW, Raw, Store
from benchmarks.victims import BEAT_NETS, beat_victim
from rlab.data.batch import Batch
from rlab.explanation.explanation import Explanation, MethodComparison
from rlab.explanation.maps import hiding_bank, mean_fill
from rlab.explanation.run import parse_method
from rlab.explanation.scores import MethodJudge, area, curves
from rlab.victims.base import Victim

STEPS = 50  # of deletion and insertion
QUICK_PHOTOS, QUICK_QUERIES, QUICK_BEATS, QUICK_CONTEXTS = 1, 400, 4, 60  # beats for each network
CHECKED, SHORTER, MEASURED = 16, 30, 20  # samples for stability and sanity, for fewer queries, for intervals


def pieces(options: Options) -> Iterator[Piece]:
    for key, case in CASES.items():
        for number, name in enumerate(case.files(key), 1):
            settings = {"case": key, "part": number, "parts": case.parts, "samples": options.samples, "seed": SEED}
            yield Piece(name, key, settings, partial(compete, key, number, options.samples))
        yield Piece(f"{SENTENCES}-{key}", SENTENCES, {"case": key, "samples": MEASURED}, partial(sentences, key))
    yield from masks.pieces()
    yield Piece("quantus", "quantus", {"samples": quantus.SAMPLES}, quantus.make)


def compete(key: str, number: int, samples: int | None, device: str) -> Raw:
    """Judge all methods, then ours and others within fewer queries, then our intervals, on one part of a case."""
    began, case = time.perf_counter(), CASES[key]
    victim, every = case.load(device)
    batch = every[:samples][number - 1 :: case.parts]
    checked, shorter, measured = (-(-count // case.parts) for count in (CHECKED, SHORTER, MEASURED))

    found = MethodJudge(steps=STEPS, checked=checked)(victim, batch, installed(batch.size), batch.y, SEED)
    scores: dict[str, Any] = {"methods": plain_scores(more_scores(found, victim))}
    scores["within"] = within(victim, batch[:shorter], SEED)
    some = batch[:measured]
    made = parse_method("belief")(victim, some, some.y, SEED)
    assert made.effects is not None
    scores |= {"coverage": interval_coverage(victim, some, made), "regions": int(made.effects.effect.numel())}
    white_box = [name for name, method in found.judged.items() if method.gradients]
    about = circumstances(f"python -m benchmarks.explain --only {key}", device)
    facts = {"ids": list(batch.ids), "white_box": white_box, "circumstances": about}
    return Raw(scores | {"seconds": time.perf_counter() - began}, facts)


def sentences(key: str, device: str) -> Raw:
    """Whether the intervals of the sentences hold the effects of removing each region alone."""
    victim, every = CASES[key].load(device)
    some = every[:MEASURED]
    made = parse_method("belief")(victim, some, some.y, SEED)
    assert made.effects is not None
    about = circumstances(f"python -m benchmarks.explain --only {SENTENCES}", device)
    held = sentence_coverage(victim, some, made)
    return Raw(held | {"regions": int(made.effects.effect.numel())}, {"samples": len(some), "circumstances": about})


def plain_scores(comparison: MethodComparison) -> dict[str, dict[str, list[float | None]]]:
    """Every method's scores for every sample; None where a sample has none."""

    def plain(scores: Mapping[str, Tensor]) -> dict[str, list[float | None]]:
        return {score: [round(v, 5) if v == v else None for v in each.tolist()] for score, each in scores.items()}

    return {name: plain({"queries": each.queries.double(), **each.scores}) for name, each in comparison.judged.items()}


def more_scores(comparison: MethodComparison, victim: Victim) -> MethodComparison:
    """Add deletion that fills in the sample's mean."""
    batch, judged = comparison.batch, {}
    x0 = batch.x.to(victim.device)
    for name, method in comparison.judged.items():
        grey = mean_fill(x0).expand_as(x0)
        own = {"deletion_grey": area(curves(victim, x0, grey, method.maps, method.labels, STEPS))}
        judged[name] = replace(method, scores={**method.scores, **own})
    return replace(comparison, judged=judged)


def recorded(key: str) -> Raw:
    raw = read(Store(RAW / "explain"), key)
    if raw is None:
        raise Absent(f"there are no raw scores for {key}: run python -m benchmarks.explain first")
    return raw


def first_samples(raw: Raw, every: Batch, samples: int) -> Batch:
    """The first samples of the full run, its classes in turn."""
    at = {name: row for row, name in enumerate(every.ids)}
    rows = [at[name] for name in raw.facts["ids"]]
    by_class = [[row for row in rows if every.y[row] == label] for label in every.y[rows].unique()]
    turns = [group[turn] for turn in range(samples) for group in by_class if turn < len(group)]
    return every[turns[:samples]]


def areas(victim: Victim, batch: Batch, made: Explanation) -> dict[str, Tensor]:
    """Deletion and insertion (n,) of a map."""
    x0 = batch.x.to(victim.device)
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    return {
        score: area(curves(victim, x0, hidden, made.maps, batch.y, STEPS, score == "insertion"))
        for score in ("deletion", "insertion")
    }


def minus_recorded(victim: Victim, batch: Batch, raw: Raw, made: Explanation) -> dict[str, float]:
    """Means of our map's deletion and insertion, minus RISE's raw scores."""
    at = [raw.facts["ids"].index(name) for name in batch.ids]

    def theirs(score: str) -> Tensor:
        return torch.tensor(raw.numbers["methods"]["rise"][score], dtype=torch.float64)[at]

    return {score: float((ours - theirs(score)).mean()) for score, ours in areas(victim, batch, made).items()}


def quick_pets() -> Iterator[tuple[str, float]]:
    """Beside RISE with as many queries, which runs now."""
    victim, every = load_pets("cpu")
    some = every[:QUICK_PHOTOS]
    ours, rise = (
        areas(victim, some, parse_method(spec)(victim, some, some.y, SEED))
        for spec in (f"belief(queries={QUICK_QUERIES})", f"rise(masks={QUICK_QUERIES - 1})")
    )
    yield "pets_insertion_minus_rise", float((ours["insertion"] - rise["insertion"]).mean())
    yield "pets_deletion", float(ours["deletion"].mean())


def quick_beats() -> Iterator[tuple[str, float]]:
    """Figures of the network where ours does worst; the coverage is over all networks."""
    raws, gaps, held = {name: recorded(f"beats_{name}") for name in BEAT_NETS}, [], []
    alone = list[dict[str, float]]()
    every = beats("test")
    for name, raw in raws.items():
        victim, some = beat_victim(name, "cpu"), first_samples(raw, every, QUICK_BEATS)
        made = parse_method("belief")(victim, some, some.y)
        gaps.append(minus_recorded(victim, some, raw, made))
        held.append(interval_coverage(victim, some, made, QUICK_CONTEXTS))
        alone.append(sentence_coverage(victim, some, made))
    yield "ecg_deletion_minus_rise", max(gap["deletion"] for gap in gaps)
    yield "ecg_insertion_minus_rise", min(gap["insertion"] for gap in gaps)
    yield "interval_coverage", sum(held) / len(held)
    yield "sentence_coverage", sum(min(own.values()) for own in alone) / len(alone)


def quick(options: Options) -> Figures:
    found: dict[str, float] = {}
    for kind, measure in (("pets", quick_pets), ("beats", quick_beats)):
        if options.only and not any(name.startswith(kind) for name in options.only):
            continue
        try:
            found.update(measure())
        except Absent as why:
            print(f"skipped {kind}: {why}")
    return found


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, help="samples of each case at most (default: all)")


CASE_NAMES = (*CASES, SENTENCES, masks.CASE, "quantus")
CLAIM = Claim("explain", "Explanations", __doc__, RULES, quick, pieces, sections, figures, flags, CASE_NAMES)
