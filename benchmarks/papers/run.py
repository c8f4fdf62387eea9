"""The papers' agents beside the newer search, the square attack and random changes, on models they have and have not seen.

python -m benchmarks.papers --pack                              # once: data/papers/cifar10, images for a GPU machine
python -m benchmarks.victims.train_clips --pack data/papers/clips.npz        # once: clips
python -m benchmarks.papers --only train-dual_action --device cuda           # train; several processes share the trainings
python -m benchmarks.papers --only dual_action --device cuda                 # attacks; cases: {cases}
python -m benchmarks.papers --page                              # write results/papers.md from the raw files
python -m benchmarks.papers --quick                             # demo digits and clips, two minutes

A training that was stopped resumes. Agents are stored in benchmarks/weights/papers.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.attacks import flipped, median
from benchmarks.data import DATA
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.papers import cases
from benchmarks.papers.cases import BUDGETS, MAIN, SEEN, SHARED, Row, Variant
from benchmarks.papers.quick import quick
from benchmarks.raw import Curves, Raw, Store, from_curves, to_curves
from benchmarks.tables import interval, share, table
from rlab.stats import median_estimate

SAMPLES = {"dual_action": 60, "two_agents": 16}
CASES = tuple(name for kind in SHARED for name in (f"train-{kind}", f"train-{kind}-variants", kind, f"{kind}-variants"))
RULES = """
The agents were trained on one H200 that six trainings shared: 8 minutes for three seeds of each, 1.8 or 4.3 minutes for a variant
(see the last table). `dual_action` learned on ResNet-20, All-CNN, an inverted-residual network, a mixer and a robust All-CNN with
1,800 of CIFAR-10's test images 0-2999, `two_agents` on C3D, TSN and TSM with a fifth of the clips of UCF-101's groups 8-25. The
attacks are on images 3000-4999 and on groups 4-7, on a CPU. Every query counts, also those of a sensitivity analysis. A distance is
the L2 (images, values in [0, 1]) or MAP (clips, mean absolute change of 255) of the best flip within q queries, after cleanup; a
sample without a flip counts as infinitely far. Queries and distance at the first flip, before anything is restored, are over
flipped samples. Brackets: 95% bootstrap intervals over samples and seeds; at the first flip, order statistics of the flips.
`dual_action` is the agent with an analysis of an eighth of the patches before each step; `dqn` is the same agent with as short a
training as `adding_only`, `ppo` and `a2c`, and `short` one with as short a training as the other variants of `two_agents`. `own`
was trained on the victim that it attacks, as in the papers.
"""


def train_settings(variant: Variant, seed: int) -> dict[str, Any]:
    named = {"agent": variant.name, "kind": variant.kind, "seed": seed, "minutes": variant.minutes}
    return named | {"victims": variant.victims} | dict(SHARED[variant.kind]) | dict(variant.options)


def trained(variant: Variant, seed: int, device: str) -> Raw:
    """Train -> the learning curve."""
    told = cases.train(variant, seed, device)
    names = {name for line in told for name in line}
    return Raw({name: [line.get(name, math.nan) for line in told] for name in sorted(names)})


def attacked(row: Row, victim: str, device: str) -> Raw:
    return Raw(from_curves(row.run(victim, SAMPLES[row.kind], device)))


def attack_settings(row: Row, victim: str) -> dict[str, Any]:
    more = {} if row.variant is None else {"agent": row.variant.file(row.seed).stem, "options": row.options}
    return {
        "victim": victim,
        "attack": row.name,
        "samples": SAMPLES[row.kind],
        "budget": BUDGETS[row.kind][-1],
        **more,
        **row.attack,
    }


def pieces(options: Options) -> Iterator[Piece]:
    for variant, seed in cases.trainings():
        case = f"train-{variant.kind}{'' if variant == MAIN[variant.kind] else '-variants'}"
        name = f"train-{variant.file(seed).stem}"
        yield Piece(name, case, train_settings(variant, seed), partial(trained, variant, seed))
    for row, victim in cases.rows():
        case = f"{row.kind}{'' if row.variant in (None, MAIN[row.kind]) else '-variants'}"
        yield Piece(row.file(victim), case, attack_settings(row, victim), partial(attacked, row, victim))


def kept(store: Store) -> Iterator[tuple[str, str, dict[str, list[Curves]]]]:
    """Kind, victim, and the curves of every seed by row."""
    for kind, victim in dict.fromkeys((row.kind, victim) for row, victim in cases.rows()):
        held: dict[str, list[Curves]] = {}
        for row in (row for row, at in cases.rows() if (row.kind, at) == (kind, victim)):
            if (name := row.file(victim)) in store:
                curves, unit = to_curves(store.read(name).numbers), 1 if kind == "dual_action" else 255
                scaled = tuple(tuple((q, unit * far) for q, far in curve) for curve in curves)
                held.setdefault(row.name, []).append(scaled)
        if held:
            yield kind, victim, held


def first_flips(seeds: Sequence[Curves]) -> tuple[str, str, str]:
    """Mean and median queries to the first flip, and its median distance."""
    firsts = [curve[0] for curves in seeds for curve in curves if curve]
    if not firsts:
        return "–", "–", "–"
    queries, far = np.array(firsts).T
    return f"{queries.mean():.0f}", f"{np.median(queries):.0f}", interval(median_estimate(torch.from_numpy(far)), 3)


def line(kind: str, name: str, seeds: Sequence[Curves]) -> tuple[str, ...]:
    within = [text for q in BUDGETS[kind] for text in (share(flipped(seeds, q)), interval(median(seeds, q), 3))]
    return (name, *within, *first_flips(seeds), str(len(seeds)))


def sections(store: Store) -> Iterator[str]:
    for kind, victim, held in kept(store):
        measure = "L2" if kind == "dual_action" else "MAP"
        words = [f"{what} within {q}" for q in BUDGETS[kind] for what in ("flips", measure)]
        heading = ("attack", *words, "mean queries", "median queries", f"{measure} at the first flip", "seeds")
        seen = "seen in training" if victim in SEEN[kind] else "not seen in training"
        body = [line(kind, name, seeds) for name, seeds in held.items()]
        yield f"## {kind} on {victim} ({seen})\n\n{table(heading, body)}"
    if curves := learning(store):
        yield curves


def learning(store: Store) -> str:
    body = []
    for name in store.names("train-"):
        numbers, seconds = store.read(name).numbers, store.origin(name).seconds
        ends = [f"{numbers[key][0]:.3g} → {numbers[key][-1]:.3g}" for key in ("reward", "success", "median_l2")]
        body.append((name.removeprefix("train-"), *ends, f"{numbers['updates'][-1]:.0f}", f"{(seconds or 0) / 60:.1f}"))
    heading = ("agent", "reward", "success on validation", "median L2 on validation", "updates", "minutes")
    return f"## Learning, from the first validation to the last\n\n{table(heading, body)}" if body else ""


def figures(store: Store) -> Figures:
    """Median distance over that of random changes, by victim and budget."""
    out = dict[str, float]()
    for kind, victim, held in kept(store):
        if kind in held and "random" in held:
            for q in BUDGETS[kind]:
                ratio = median(held[kind], q).value / median(held["random"], q).value
                out[f"{kind} {victim} over random {q}"] = ratio
    return out


def packed(options: Options) -> Mapping[str, float]:
    return {"cifar_mb": cases.pack(DATA / "papers"), "clips_mb": cases.pack_clips(cases.CLIP_PACK)}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pack", action="store_true", help="write data/papers for a machine with a GPU")


CLAIM = Claim(
    "papers", "The papers' agents", (__doc__ or "").replace("{cases}", ", ".join(CASES)), RULES, quick, pieces, sections,
    figures, flags, CASES, commands={"pack": packed},
)  # fmt: skip
