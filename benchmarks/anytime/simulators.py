"""Attacks that try their candidates on other networks first: surrogates, or students of the victim.

A simulator costs no query while it is used. Students cost the answers they learned from; `accounting` counts those too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.anytime.simulator_cases import CASES, GROUP, LEARNED, QUERIES, SEED, SimulatorCase, lessons, surrogates
from benchmarks.attacks import flips, within
from benchmarks.harness import Piece
from benchmarks.raw import Curves, Improvements, Store
from benchmarks.tables import interval, table
from benchmarks.tables import section as section_of
from rlab.data.batch import Batch
from rlab.learning.answers import Answers
from rlab.learning.distil import distil
from rlab.learning.simulator import Simulator
from rlab.policies.imagine import ImaginePolicy
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.stats import Estimate, mean_estimate, ratio_over_seeds
from rlab.victims.base import Victim

SHOWN = (3, 5, 8, 12, 20, 50)
RUNS = (100, 500, 5000)  # samples of a run
FAR = 30.0  # the distance of a sample without a flip in means
QUICK_SAMPLES, QUICK_QUERIES = 4, 20
ROWS = {
    "belief": "no simulator, no prior",
    "auto": "no simulator",
    "rule": "surrogates, the rule chooses (0.2.0)",
    "imagine": "surrogates",
    "no-plan": "surrogates, no plan",
    "one": "one surrogate",
    "students": "students of clean answers",
}


def students(victim: Victim, batch: Batch, device: str) -> Simulator:
    scores = torch.cat([victim(part.to(victim.device), "learn").cpu() for part in batch.x.split(256)])
    answers = Answers(batch.x, scores, queries=len(batch))
    return distil(answers, batch.bounds, multilabel=False, seed=SEED, device=torch.device(device))


def measure(
    case: SimulatorCase, row: str, device: str, samples: int | None = None, queries: int | None = None
) -> Curves:
    victim, batch = case.load(samples or case.samples, device)
    given: dict[str, Any] = {}
    if row in ("rule", "imagine", "no-plan", "one"):
        given["surrogate"] = surrogates(case, row, device)
    if row == "students":
        given["simulator"] = students(victim, lessons(case), device)
    return flips(run_attack(*_attack(case, row, batch, victim, queries or case.queries, **given)))


def _attack(
    case: SimulatorCase, row: str, batch: Batch, victim: Victim, queries: int, **given: Any
) -> tuple[Any, Victim, Batch]:
    policy = "belief" if row in ("belief", "rule") else "auto"
    chunk = {} if victim.device.type == "cpu" else {"chunk": len(batch)}
    attack = make_attack(
        batch, policy=policy, palette=case.palette, patch=case.patch, budget=queries + 1, until="budget", seed=SEED,
        **chunk, **given,
    )  # fmt: skip
    if isinstance(attack.policy, ImaginePolicy) and row == "no-plan":
        attack = replace(attack, policy=replace(attack.policy, plan=False))
    return attack, victim, batch


def pieces() -> Iterator[Piece]:
    for case in CASES:
        for row in case.rows:
            yield Piece.of_curves(case.file(row), GROUP, case.settings(row), partial(measure, case, row))


def ratio(ours: Curves, other: Curves, queries: int) -> Estimate:
    count = min(len(ours), len(other))
    return ratio_over_seeds(within([ours[:count]], queries), within([other[:count]], queries), "median")


def gain(ours: Curves, other: Curves) -> Estimate:
    """Exp of the mean difference of the log distance over the first 20 queries, paired by sample."""
    logs = [
        np.mean([np.log(np.minimum(within([curves], q)[0], FAR)) for q in range(3, 21)], 0) for curves in (ours, other)
    ]
    mean = mean_estimate(logs[0] - logs[1], SEED)
    return Estimate(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high))


def kept(store: Store, case: SimulatorCase) -> dict[str, Curves]:
    return store.curves({row: case.file(row) for row in case.rows})


def sections(store: Store) -> Iterator[str]:
    for case in CASES:
        if held := kept(store, case):
            yield _section(case, held)
    yield accounting(store)


def accounting(store: Store) -> str:
    """Students against no students at the same number of queries in all, those of learning included."""
    rows = []
    for case in (case for case in CASES if {"students", "auto"} <= set(case.rows)):
        held = kept(store, case)
        if len(held) < len(case.rows):
            continue
        for samples in RUNS:
            share = LEARNED[case.lessons] / samples
            cells = [
                f"{_median(held['students'], q):.3g} / {_median(held['auto'], round(q + share)):.3g}"
                if q + share <= QUERIES
                else f"{_median(held['students'], q):.3g} / –"
                for q in SHOWN
            ]
            rows.append((case.name, f"{samples:,}", f"{share:.1f}", *cells))
    note = (
        "With students after q queries of the attack, and without after as many queries in all: q plus the sample's share of "
        f"those that the students learned from. A dash: beyond the {QUERIES} queries measured. "
        "Clean answers that the attack itself pays for (`--learn stages`) add nothing to the share."
    )
    head = ("", "samples", "share", *(f"q = {q}" for q in SHOWN))
    return section_of("All queries counted", table(head, rows), note)


def _section(case: SimulatorCase, held: Mapping[str, Curves]) -> str:
    shown = [q for q in SHOWN if q <= case.queries]
    rows = [
        (ROWS[row], *(f"{_median(curves, q):.3g}" for q in shown), f"{_mean(curves, 20):.3g}")
        for row, curves in held.items()
    ]
    for ours, other in PAIRS:
        if ours in held and other in held:
            cells = [interval(ratio(held[ours], held[other], q)) for q in shown]
            rows.append((f"ratio: {ROWS[ours]} / {ROWS[other]}", *cells, interval(gain(held[ours], held[other]))))
    note = f"{len(next(iter(held.values())))} samples. The last column is the geometric mean at 20, of ratios over 3 to 20."
    for row in held:
        if "belief" in held and row not in ("belief", "rule"):
            both = stalled(held[row], held["belief"]), stalled(held["belief"], held[row])
            note += f" {ROWS[row][0].upper()}{ROWS[row][1:]}: {both[0]} samples stall, {both[1]} without it."
    return section_of(f"Imagine before you ask: {case.name}", table(("", *map(str, shown), "mean"), rows), note)


def stalled(ours: Curves, other: Curves) -> int:
    """Samples whose first flip takes more than three times as many queries as another search's, and ten more."""
    pairs = zip(ours, other, strict=False)
    return sum(_first(mine) > max(3 * _first(theirs), _first(theirs) + 10) for mine, theirs in pairs)


def _first(flips: Improvements) -> float:
    return flips[0][0] if flips else math.inf


PAIRS = (("imagine", "rule"), ("imagine", "auto"), ("students", "auto"), ("auto", "belief"))


def _median(curves: Curves, queries: int) -> float:
    values = np.sort(within([curves], queries)[0])
    return float(values[(len(values) - 1) // 2])


def _mean(curves: Curves, queries: int) -> float:
    return float(np.exp(np.log(np.minimum(within([curves], queries)[0], FAR)).mean()))


def figures(store: Store) -> dict[str, float]:
    """The figures by the names that scripts rely on."""
    held = {case.name: kept(store, case) for case in CASES}
    found = keyed(held.get("vgg", {}), (5, 20))
    worst = [value for curves in held.values() for value in against_belief(curves)]
    return found | ({"trust_worst": max(worst)} if worst else {})


def keyed(held: Mapping[str, Curves], queries: Sequence[int]) -> dict[str, float]:
    found = dict[str, float]()
    for name, ours, other in (("sim", "imagine", "rule"), ("student", "students", "auto")):
        if ours in held and other in held:
            found |= {f"{name}_ratio_{q}": ratio(held[ours], held[other], q).value for q in queries}
    return found


def against_belief(held: Mapping[str, Curves]) -> list[float]:
    """Medians of every form of `auto` over `belief`, at each q where both have one."""
    if "belief" not in held:
        return []
    ratios = [ratio(held[row], held["belief"], q).value for row in held if row not in ("belief", "rule") for q in SHOWN]
    return [value for value in ratios if math.isfinite(value)]


def quick(store: Store, device: str) -> dict[str, float]:
    """Surrogates on the VGG measured now, the others from their raw files: students take minutes of a GPU to distil."""
    case = CASES[0]
    stored = kept(store, case)
    now = {"imagine": measure(case, "imagine", device, QUICK_SAMPLES, QUICK_QUERIES)}
    print("students: the figures of the full run")
    return figures(store) | keyed({**{row: stored[row] for row in ("rule",) if row in stored}, **now}, (5, 20))
