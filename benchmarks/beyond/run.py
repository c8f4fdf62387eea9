"""Detectors, segmenters and regressors: how small a distortion makes each fail within few queries.

python -m benchmarks.beyond                        # run the rows that have no raw file, then write results/beyond.md
python -m benchmarks.beyond --only regression      # one case
python -m benchmarks.beyond --quick                # a few samples of the detector, a small segmenter and the regressor

Pets, records and published models are below $RLAB_REAL.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.attacks import attack, flipped, flips, median, ratio
from benchmarks.beyond import explain
from benchmarks.beyond.cases import CASES, Case
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.raw import Curves, Store
from benchmarks.tables import interval, section, share, table

OURS, BASELINES = "auto", ("square", "random")
POLICIES = (OURS, *BASELINES)
SEED, PICTURED = 0, 3
IMAGES = Path(__file__).parents[2] / "docs" / "images"
RULES = """
A figure is the median L2 (values in [0, 1]; millivolts for ECG) of the best flip within q queries, over samples on
which the model is right at first; a sample without a flip counts as infinitely far. The clean prediction counts as a
query. `auto` is the default of `rlab attack`; `square` and `random` go on after their first flip until the budget is
spent. Brackets are 95% bootstrap intervals over samples. A ratio is our median over that of the better baseline at
the same q.
"""


def curves(case: Case, policy: str, rows: slice) -> Curves:
    """The flips of those of the samples on which the model is right."""
    victim, batch = case.load(rows)
    return flips(
        attack(
            victim,
            batch,
            goal=case.goal,
            policy=policy,
            patch=case.patch,
            budget=case.budget,
            seed=SEED,
            until="budget",
        )
    )


def file(name: str, policy: str, rows: slice) -> str:
    return f"{name}-{policy}-{rows.start}"


def pieces(options: Options) -> Iterator[Piece]:
    for name, case in CASES.items():
        for rows in case.parts():
            for policy in POLICIES:
                settings = {
                    "goal": case.goal, "policy": policy, "samples": [rows.start, rows.stop], "budget": case.budget,
                    "patch": list(case.patch),
                }  # fmt: skip
                yield Piece.of_curves(file(name, policy, rows), name, settings, partial(_make, case, policy, rows))
    yield from explain.pieces()


def _make(case: Case, policy: str, rows: slice, device: str) -> Curves:
    return curves(case, policy, rows)


def kept(store: Store, name: str) -> dict[str, Curves]:
    """The flips of each policy, over the parts of which all policies have a raw file."""
    parts = [store.curves({policy: file(name, policy, rows) for policy in POLICIES}) for rows in CASES[name].parts()]
    whole = [part for part in parts if set(part) == set(POLICIES)]
    return {policy: tuple(flips for part in whole for flips in part[policy]) for policy in POLICIES} if whole else {}


def ratio_at(rows: Mapping[str, Curves], queries: int) -> float:
    """Our median over that of the better baseline."""
    return max(ratio([rows[OURS]], [rows[name]], queries).value for name in BASELINES if name in rows)


def figure(value: float) -> str:
    """A ratio, or a dash where a median is infinite."""
    return f"{value:.3g}" if 0 < value < math.inf else "–"


def part(name: str, rows: Mapping[str, Curves]) -> str:
    case = CASES[name]
    body = [
        (
            policy,
            *(interval(median([curves], q)) for q in case.at),
            share(flipped([curves], case.budget)),
            str(len(curves)),
        )
        for policy, curves in rows.items()
    ]
    if OURS in rows and len(rows) > 1:
        body.append((f"{OURS} ÷ better baseline", *(figure(ratio_at(rows, q)) for q in case.at), "", ""))
    picture = f"![One sample, before and after](../../docs/images/beyond-{name}.png)"
    shown = [picture] if (IMAGES / f"beyond-{name}.png").exists() else []
    return section(case.title, *shown, table(("L2 within", *map(str, case.at), "flipped", "samples"), body))


def sections(store: Store) -> Iterator[str]:
    for name in CASES:
        if rows := kept(store, name):
            yield part(name, rows)
    yield from explain.sections(store)


def figures(store: Store) -> Figures:
    held = {name: kept(store, name) for name in CASES}
    return explain.figures(store) | {
        f"{name}_ratio_{CASES[name].budget}": ratio_at(rows, CASES[name].budget)
        for name, rows in held.items()
        if set(rows) == set(POLICIES)
    }


def quick(options: Options) -> Figures:
    found: dict[str, float] = {}
    for name, case in CASES.items():
        if not case.quick or (options.only and name not in options.only):
            continue
        rows = {policy: curves(case, policy, slice(0, case.quick)) for policy in POLICIES}
        for policy, each in rows.items():
            print(
                f"{name} {policy}: {len(each)} samples, L2 {median([each], case.budget).value:.3f} within {case.budget}",
                flush=True,
            )
        found[f"{name}_ratio_{case.budget}"] = ratio_at(rows, case.budget)
    return {**found, **(explain.quick() if not options.only or explain.CASE in options.only else {})}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pictures", action="store_true", help="draw one sample of each case into docs/images; run nothing else"
    )


def pictures(options: Options) -> Figures:
    """Draw the easiest of a few samples of each case."""
    for name, case in CASES.items():
        if options.only and name not in options.only:
            continue
        victim, batch = case.load(slice(0, PICTURED))
        result = attack(victim, batch, goal=case.goal, patch=case.patch, budget=case.budget, seed=SEED, until="budget")
        far = result.final["l2"].masked_fill(~result.succeeded, math.inf)
        result.plot(int(far.argmin())).savefig(IMAGES / f"beyond-{name}.png", dpi=100)
    return {}


CLAIM = Claim(
    "beyond",
    "Beyond classifiers",
    __doc__,
    RULES,
    quick,
    pieces,
    sections,
    figures,
    cases=(*CASES, explain.CASE),
    flags=add_flags,
    commands={"pictures": pictures},
)
