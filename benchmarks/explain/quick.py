"""A few samples of the full run: our map is made now; RISE's scores with 8,000 queries come from the raw files."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.beats import beats
from benchmarks.data import Absent, pets
from benchmarks.explain.belief import interval_coverage
from benchmarks.explain.cases import SEEN, pets_victim
from benchmarks.explain.page import read
from benchmarks.harness import Figures, Options
from benchmarks.raw import RAW, Raw, Store
from benchmarks.victims import BEAT_NETS, beat_victim
from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.belief import Belief
from rlab.explanation.maps import hiding_bank
from rlab.explanation.scores import area, curves
from rlab.victims.base import Victim

STEPS = 50  # of deletion and insertion
PHOTOS, QUERIES = 1, 400
BEATS, CONTEXTS = 4, 60  # for each network


def scores(key: str) -> Raw:
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


def compared(victim: Victim, batch: Batch, raw: Raw, made: Explanation) -> dict[str, float]:
    """Mean deletion and insertion of our map, and their difference to RISE's raw scores."""
    x0, means = batch.x.to(victim.device), dict[str, float]()
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    at = [raw.facts["ids"].index(name) for name in batch.ids]
    for score in ("deletion", "insertion"):
        ours = area(curves(victim, x0, hidden, made.maps, batch.y, STEPS, score == "insertion"))
        theirs = torch.tensor(raw.numbers["methods"]["rise"][score], dtype=torch.float64)[at]
        means |= {score: float(ours.mean()), f"{score}_minus_rise": float((ours - theirs).mean())}
    return means


def quick_pets() -> Iterator[tuple[str, float]]:
    raw = scores("pets")
    victim, some = pets_victim("cpu"), first_samples(raw, pets()[SEEN:], PHOTOS)
    found = compared(victim, some, raw, Belief(QUERIES)(victim, some, some.y))
    yield "pets_insertion_minus_rise", found["insertion_minus_rise"]
    yield "pets_deletion", found["deletion"]


def quick_beats() -> Iterator[tuple[str, float]]:
    """Of the networks, the one where ours does worst; the coverage is over all."""
    raws, gaps, held = {name: scores(f"beats_{name}") for name in BEAT_NETS}, [], []
    every = beats("test")
    for name, raw in raws.items():
        victim, some = beat_victim(name, "cpu"), first_samples(raw, every, BEATS)
        made = Belief()(victim, some, some.y)
        gaps.append(compared(victim, some, raw, made))
        held.append(interval_coverage(victim, some, made, CONTEXTS))
    yield "ecg_deletion_minus_rise", max(gap["deletion_minus_rise"] for gap in gaps)
    yield "ecg_insertion_minus_rise", min(gap["insertion_minus_rise"] for gap in gaps)
    yield "interval_coverage", sum(held) / len(held)


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
