"""What decides that YOLOX-nano finds a pet: our map and that of D-RISE, judged by deletion, insertion and the pointing game."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch

from benchmarks.beyond.cases import pets_with_boxes
from benchmarks.beyond.models import yolox
from benchmarks.harness import Piece
from benchmarks.raw import Raw, Store
from benchmarks.tables import section, table
from rlab.data.batch import Batch
from rlab.explanation.options import keep_found
from rlab.explanation.run import parse_method
from rlab.explanation.scores import MethodJudge
from rlab.victims.base import Victim

CASE = "explain"
QUERIES, MASKS, QUICK_MASKS = 500, 5000, 1000
OBJECTS, QUICK_OBJECTS = 12, 8
SEED = 0
OURS, THEIRS = "belief", "drise"
SCORES = ("deletion", "insertion", "pointing", "energy", "queries", "seconds")


def objects(count: int) -> tuple[Victim, Batch]:
    """The first `count` pets that the detector finds."""
    victim = yolox()
    return victim, keep_found(victim, pets_with_boxes()[: 2 * count], None)[:count]


def judged(victim: Victim, batch: Batch, spec: str) -> dict[str, list[float]]:
    """The scores of a method for each object, and the seconds that its map took."""
    began, method = time.perf_counter(), parse_method(spec)
    scored = MethodJudge(checks=False)(victim, batch, [method], seed=SEED).judged[method.name]
    print(f"{method.name}: {len(batch)} objects, {time.perf_counter() - began:.0f} s", flush=True)
    each = scored.seconds / len(batch)
    found = {"queries": scored.queries.double(), **scored.scores}
    values = {name: found[name].tolist() for name in SCORES if name in found}
    return values | {"seconds": [each] * len(batch)}


def methods(masks: int) -> dict[str, str]:
    return {OURS: f"belief(queries={QUERIES})", THEIRS: f"drise(masks={masks})"}


def quick() -> dict[str, float]:
    victim, batch = objects(QUICK_OBJECTS)
    return ratios({name: judged(victim, batch, method) for name, method in methods(QUICK_MASKS).items()})


def ratios(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Our mean deletion and insertion over those of D-RISE."""
    deletion, insertion = (
        float(np.mean(scores[OURS][name]) / np.mean(scores[THEIRS][name])) for name in ("deletion", "insertion")
    )
    return {"drise_ratio": deletion, "drise_insertion": insertion}


def pieces() -> Iterator[Piece]:
    for name, method in methods(MASKS).items():
        for number in range(OBJECTS):
            settings = {"method": method, "object": number, "seed": SEED}
            yield Piece(f"{CASE}-{name}-{number:02d}", CASE, settings, partial(_make, method, number))


def _make(method: str, number: int, device: str) -> Raw:
    victim, batch = objects(OBJECTS)
    torch.manual_seed(SEED)
    return Raw(judged(victim, batch[number : number + 1], method))


def kept(store: Store) -> dict[str, dict[str, list[float]]]:
    """The scores of the objects that every method has explained."""
    done = {name: {key[-2:] for key in store.names(f"{CASE}-{name}-")} for name in (OURS, THEIRS)}
    both = sorted(set.intersection(*done.values()))
    if not both:
        return {}
    read = {name: [store.read(f"{CASE}-{name}-{number}").numbers for number in both] for name in done}
    return {name: {score: [float(one[score][0]) for one in rows] for score in SCORES} for name, rows in read.items()}


def figures(store: Store) -> dict[str, float]:
    scores = kept(store)
    return ratios(scores) if scores else {}


def sections(store: Store) -> Iterator[str]:
    if scores := kept(store):
        head = ("method", "deletion ↓", "insertion ↑", "pointing ↑", "energy ↑", "queries", "seconds per object")
        body = [(name, *(f"{np.mean(own[score]):.3g}" for score in SCORES)) for name, own in scores.items()]
        count = len(next(iter(scores.values()))["deletion"])
        title = f"What decides that YOLOX-nano finds a pet ({count} objects; D-RISE with {MASKS:,} masks)"
        yield section(title, table(head, body))
