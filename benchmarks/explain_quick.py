"""Few samples of the full run, our map made anew, RISE's scores with 8,000 queries from the run's raw scores: under a minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks import common
from benchmarks.explain_belief import interval_coverage
from rlab.data.batch import Batch
from rlab.explanation.base import hiding_bank
from rlab.explanation.belief import Belief
from rlab.explanation.scores import area, curves
from rlab.victims.base import Victim
from rlab.victims.torch_module import TorchVictim

SEEN = 40  # pets that settings were chosen on
STEPS = 50  # of deletion and insertion
NETS = ("cnn", "resnet", "transformer")
PHOTOS, QUERIES, BEATS, CONTEXTS = 2, 150, 4, 100  # and queries of a photo


def pets_victim(device: str) -> TorchVictim:
    victim = common.photo_victim(device)
    victim.chunk = 32 if device == "cpu" else 512  # the quickest
    return victim


def committed(raw: Mapping[str, Any] | None, key: str, every: Batch, samples: int) -> Batch:
    """The first samples of the full run, of its classes in turn."""
    if raw is None:
        raise common.Absent(f"there are no raw scores of {key}: run python -m benchmarks.explain first")
    at = {name: row for row, name in enumerate(every.ids)}
    rows = [at[name] for name in raw["ids"]]
    by_class = [[row for row in rows if every.y[row] == label] for label in every.y[rows].unique()]
    turns = [group[turn] for turn in range(samples) for group in by_class if turn < len(group)]
    return every[turns[:samples]]


def ahead(victim: Victim, batch: Batch, raw: Mapping[str, Any], queries: int | None) -> dict[str, Tensor]:
    """(n,) deletion and insertion of our map, made now, and by how much they differ from RISE's in the raw scores."""
    x0 = batch.x.to(victim.device)
    maps = Belief(queries)(victim, batch, batch.y).maps
    hidden = hiding_bank(x0, batch.bounds, [0] * len(batch))[:, 1]
    at = [raw["ids"].index(name) for name in batch.ids]
    found = {}
    for score in ("deletion", "insertion"):
        found[score] = area(curves(victim, x0, hidden, maps, batch.y, STEPS, score == "insertion"))
        theirs = torch.tensor(raw["methods"]["rise"]["scores"][score], dtype=torch.float64)
        found[f"{score}_minus_rise"] = found[score] - theirs[at]
    return found


def quick_pets(raws: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    raw, batch = raws.get("pets"), common.pets()[SEEN:]
    some = committed(raw, "pets", batch, PHOTOS)
    found = ahead(pets_victim("cpu"), some, raw or {}, QUERIES)
    yield "pets_insertion_minus_rise", float(found["insertion_minus_rise"].mean())
    yield "pets_deletion", float(found["deletion"].mean())


def quick_beats(raws: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Of the networks, the one where we are least good; intervals over all."""
    from benchmarks.pack_ecg import beats
    from benchmarks.train_ecg import ecg_victim

    every, gaps, held = beats("test"), [], []
    for name in NETS:
        victim, raw = ecg_victim(name, "cpu"), raws.get(f"beats_{name}")
        some = committed(raw, f"beats_{name}", every, BEATS)
        gaps.append(ahead(victim, some, raw or {}, None))
        held.append(interval_coverage(victim, some, Belief()(victim, some, some.y), CONTEXTS))
    yield "ecg_deletion_minus_rise", max(float(found["deletion_minus_rise"].mean()) for found in gaps)
    yield "ecg_insertion_minus_rise", min(float(found["insertion_minus_rise"].mean()) for found in gaps)
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
