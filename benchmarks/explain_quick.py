"""Few samples of the full run, our map made anew, RISE's scores with 8,000 queries from the run's raw scores: under a minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from benchmarks import common
from benchmarks.explain_belief import interval_coverage
from rlab.data.batch import Batch
from rlab.explanation.base import Explanation, hiding_bank
from rlab.explanation.belief import Belief
from rlab.explanation.scores import area, curves
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

SEEN = 40  # pets that settings were chosen on
STEPS = 50  # of deletion and insertion
NETS = ("cnn", "resnet", "transformer")
PHOTOS, QUERIES = 1, 400  # of the photo
BEATS, CONTEXTS = 4, 60  # of each network


def pets_victim(device: str) -> TorchVictim:
    victim = common.photo_victim(device)
    victim.chunk = 32 if device == "cpu" else 512  # the quickest, as is the memory's order
    victim.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return victim


def _there(raws: Mapping[str, Mapping[str, Any]], key: str) -> Mapping[str, Any]:
    if key not in raws:
        raise common.Absent(f"there are no raw scores of {key}: run python -m benchmarks.explain first")
    return raws[key]


def committed(raw: Mapping[str, Any], every: Batch, samples: int) -> Batch:
    """The first samples of the full run, its classes in turn."""
    at = {name: row for row, name in enumerate(every.ids)}
    rows = [at[name] for name in raw["ids"]]
    by_class = [[row for row in rows if every.y[row] == label] for label in every.y[rows].unique()]
    turns = [group[turn] for turn in range(samples) for group in by_class if turn < len(group)]
    return every[turns[:samples]]


def ahead(victim: Victim, batch: Batch, raw: Mapping[str, Any], found: Explanation) -> dict[str, float]:
    """Mean deletion and insertion of our map, made now, and by how much they differ from RISE's in the raw scores."""
    x0, means = batch.x.to(victim.device), dict[str, float]()
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    at = [raw["ids"].index(name) for name in batch.ids]
    for score in ("deletion", "insertion"):
        ours = area(curves(victim, x0, hidden, found.maps, batch.y, STEPS, score == "insertion"))
        theirs = torch.tensor(raw["methods"]["rise"]["scores"][score], dtype=torch.float64)[at]
        means |= {score: float(ours.mean()), f"{score}_minus_rise": float((ours - theirs).mean())}
    return means


def quick_pets(raws: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    raw = _there(raws, "pets")
    victim, some = pets_victim("cpu"), committed(raw, common.pets()[SEEN:], PHOTOS)
    found = ahead(victim, some, raw, Belief(QUERIES)(victim, some, some.y))
    yield "pets_insertion_minus_rise", found["insertion_minus_rise"]
    yield "pets_deletion", found["deletion"]


def quick_beats(raws: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Of the networks, the one where we are least good; intervals over all."""
    from benchmarks.pack_ecg import beats
    from benchmarks.train_ecg import ecg_victim

    scores, gaps, held = [_there(raws, f"beats_{name}") for name in NETS], [], []
    every = beats("test")
    for name, raw in zip(NETS, scores, strict=True):
        victim, some = ecg_victim(name, "cpu"), committed(raw, every, BEATS)
        found = Belief()(victim, some, some.y)
        gaps.append(ahead(victim, some, raw, found))
        held.append(interval_coverage(victim, some, found, CONTEXTS))
    yield "ecg_deletion_minus_rise", max(gap["deletion_minus_rise"] for gap in gaps)
    yield "ecg_insertion_minus_rise", min(gap["insertion_minus_rise"] for gap in gaps)
    yield "interval_coverage", sum(held) / len(held)


def quick_figures(raws: Mapping[str, Mapping[str, Any]], only: Sequence[str] | None) -> dict[str, float]:
    """Of the named sections, those of beats together; one whose data or raw scores are not here is left out with a word."""
    found: dict[str, float] = {}
    for kind, measure in (("pets", quick_pets), ("beats", quick_beats)):
        if only and not any(name.startswith(kind) for name in only):
            continue
        try:
            found.update(measure(raws))
        except common.Absent as error:
            print(f"{kind} are left out: {error}")
    return found
