"""Our attacks beside the strongest there are: those that have surrogates too, on free pixels and inside a natural palette.

python -m benchmarks.peers                              # what is kept in benchmarks/results/raw, as benchmarks/results/peers.md
python -m benchmarks.peers --run --victim vgg           # run the rows of one victim that are not kept (minutes on a GPU)
python -m benchmarks.peers --run --fresh                # run every row again
python -m benchmarks.peers --run --attacks gfcs,square_min   # some rows only: printed and kept, no page
python -m benchmarks.peers --quick                      # under a minute: ours on few images, peers as kept, writes nothing

A figure is the median over samples that the victim has right (CIFAR-10 test images, photos, clips), and over seeds, of the L2
(values in [0, 1]) of the best flip within q queries; no flip counts as infinitely far. A query is any row of the search and of
the stage after the flip that reaches the victim; the clean prediction, which tells peers and us where to begin, is not counted
for either, nor is the last prediction that verifies a flip. Asking surrogates is free. Brackets are 95% bootstrap intervals
that draw images and seeds; a ratio is our median over that of the best other row at the same q, and where its interval holds 1
it is no difference. Surrogates are ResNet-20, ConvMixer, an all-convolutional net, the same trained against perturbations, and
inverted residuals; of photos EfficientNet-Lite0 and Lite2 (one family with the victim), of clips C3D, TSN and TSM: no victim
is among them. Ours shows each surrogate moved and mirrored copies of the input; a peer "of 10 copies" has gradients averaged
over all of them. Peers are written from their papers (`rlab/comparison`), at their usual step scaled to the data; those that
end at their flip go on by bisection towards the original (inside a palette, along their own push), because ours reduces too.
Inside the palette a peer's steps are followed by the assignment of palette entries that gains most along them for its squared
L2. Rows that have stopped by then hold what they reached: ours with surrogates or inside the palette at 100 queries, `bases`
at 50. Attacks without chance (ours on free pixels, `ensemble_pgd`, `bases`) are of seed 0 alone; a row of fewer samples than
the others says how many, and was run on 2 CPU cores, the others on an H200. Settings of ours were chosen on test images
1000-1399, steps and strengths of peers are those of their papers, or the better of two that are shown.
Ours with surrogates on the vision transformer and the robust CNN is older than its other rows: from before copies were shown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks import common
from benchmarks.peers_rows import (
    CIFAR_TABLES,
    OTHER_TABLES,
    OURS,
    OURS_ALONE,
    OURS_INSIDE,
    SAMPLES,
    SEEDS,
    Curves,
    Row,
)  # fmt: skip
from benchmarks.peers_victims import CASES
from rlab.core.trace import best_within
from rlab.errors import MissingExtra
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds

QUERIES = (1, 2, 3, 4, 5, 6, 20, 50, 100, 500)
SHARES = (1, 5, 20, 100)


def within(curves: Sequence[Curves], queries: int) -> Floats:
    """(seeds, n)"""
    return np.stack([best_within(tuple(one), queries).double().numpy() for one in curves])


def median(curves: Sequence[Curves], queries: int) -> Estimate:
    return over_seeds(within(curves, queries), "median")


def flipped(curves: Sequence[Curves], queries: int) -> Estimate:
    return over_seeds(np.isfinite(within(curves, queries)).astype(np.float64), "mean")


def ratio(mine: Sequence[Curves], other: Sequence[Curves], queries: int) -> Estimate:
    """Our median over the other's, on the images and seeds that both have."""
    count, seeds = min(len(mine[0]), len(other[0])), min(len(mine), len(other))
    cut = [[one[:count] for one in curves[:seeds]] for curves in (mine, other)]
    return ratio_over_seeds(within(cut[0], queries), within(cut[1], queries), "median")


def best_peer(table: Mapping[str, list[Curves]], queries: int, begins: str = "") -> str | None:
    """The row that is not ours with the least median, if any has one; those of fewer images are left out.

    `begins`: how its name begins.
    """
    own = {OURS, OURS_ALONE, OURS_INSIDE, "auto", "belief", "hopskipjump"}
    medians = {
        name: median(curves, queries).value
        for name, curves in table.items()
        if name not in own and name.startswith(begins)
    }
    name = min(medians, key=lambda name: medians[name], default=None)
    return name if name is not None and math.isfinite(medians[name]) else None


def section(title: str, rows: Sequence[Row], table: Mapping[str, list[Curves]], most: int) -> str:
    queries = [q for q in QUERIES if q <= most]
    shown = [row for row in rows if row.name in table]
    first = shown[0].name
    body = [
        (
            row.name,
            *(common.interval(median(table[row.name], q)) for q in queries),
            str(len(table[row.name])),
            str(len(table[row.name][0])),
            row.needs,
        )
        for row in shown
    ]
    if first in (OURS, OURS_INSIDE):
        best = {q: best_peer(table, q) for q in queries}
        told = [_versus(table[first], table[name], q, name) if name else "" for q, name in best.items()]
        body.append((f"{first} ÷ best peer", *told, "", "", ""))
    shares = [(row.name, *(common.share(flipped(table[row.name], q)) for q in SHARES)) for row in shown]
    counts = f"{len(table[first][0])} samples the victim had right."
    return "\n\n".join(
        [
            f"## {title}",
            common.table(("L2 within", *(f"{q}" for q in queries), "seeds", "samples", "needs"), body),
            common.table(("flipped within", *(f"{q}" for q in SHARES)), shares),
            counts,
        ]
    )


def _versus(mine: Sequence[Curves], other: Sequence[Curves], queries: int, name: str) -> str:
    e = ratio(mine, other, queries)
    if math.isnan(e.value):
        return "–"
    return f"{common.interval(e)}{' no difference' if e.includes(1.0) else ''}, {name}"


def measure(
    rows: Sequence[Row], victim: str, seeds: int, samples: int, device: str, fresh: bool, run: bool = True
) -> dict[str, list[Curves]]:
    """Every seed's curves by the row's name; unless they are to be run, only what is kept. Rows whose package is not
    installed are told and left out."""
    table = {}
    for row in rows:
        try:
            seeded = range(min(seeds, row.seeds))
            if run:
                table[row.name] = [row.kept(victim, seed, samples, device, fresh) for seed in seeded]
            elif found := [curves for seed in seeded if (curves := row.kept_longest(victim, seed)) is not None]:
                table[row.name] = found
        except MissingExtra as why:
            print(f"{row.name} is left out: {why}")
    return table


def figures(
    free: Mapping[str, list[Curves]], inside: Mapping[str, list[Curves]], targeted: Mapping[str, list[Curves]]
) -> dict[str, Any]:
    """Of the VGG, by the names a script may hold them to; NaN where a row is missing."""

    def two(table: Mapping[str, list[Curves]], mine: str, other: str | None, queries: int) -> float:
        there = mine in table and other in table
        return ratio(table[mine], table[other], queries).value if there and other is not None else math.nan

    def one(name: str, of: Callable[[Sequence[Curves], int], Estimate], queries: int) -> float:
        return of(free[name], queries).value if name in free else math.nan

    return {
        "vgg_l2_at_3": one(OURS, median, 3),
        "vgg_gfcs_l2_at_4": one("gfcs", median, 4),
        "vgg_ratio_gfcs_20": two(free, OURS, "gfcs", 20),
        "vgg_success_5": one(OURS, flipped, 5),
        "noprior_ratio_square_500": two(free, OURS_ALONE, best_peer(free, 500, "square_min"), 500),
        "palette_ratio_best_peer_20": two(inside, OURS_INSIDE, best_peer(inside, 20), 20),
        "targeted_ratio_square_50": two(targeted, "auto targeted", "square targeted", 50),
    }


def quick(device: str, chosen: set[str]) -> dict[str, Any]:
    """The figures of few images and one seed: ours run now, peers as kept; three of them run now where nothing is."""
    few = {OURS: (3, 20), OURS_ALONE: (5, 500), OURS_INSIDE: (3, 20)}
    peers = {"gfcs": (3, 20), "square_min": (5, 500), "gfcs+palette": (3, 20)}
    tables = []
    for rows in CIFAR_TABLES.values():
        table = dict[str, list[Curves]]()
        for row in (row for row in rows if not chosen or row.name in chosen):
            if row.name not in few and (found := row.kept_longest("vgg", 0)) is not None:
                table[row.name] = [found]
            elif row.name in few | peers:
                samples, budget = (few | peers)[row.name]
                table[row.name] = [replace(row, budget=budget).fresh("vgg", 0, samples, device)]
        tables.append(table)
    for name, curves in (tables[0] | tables[1] | tables[2]).items():
        print(f"{name}: {len(curves[0])} images, L2 {median(curves, 20).value:.3f} within 20 queries")
    return figures(*tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victim", default="", help=f"some of {', '.join(CASES)}, with commas")
    parser.add_argument("--attacks", default="", help="names of rows, with commas")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--run", action="store_true", help="run what is not kept")
    parser.add_argument("--fresh", action="store_true", help="with --run: what is kept too")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args()
    chosen, names = ({name for name in text.split(",") if name} for text in (o.attacks, o.victim))
    if o.quick:
        return common.finish(quick(o.device, chosen))
    pages, told = [], dict[str, Any]()
    for victim, case in CASES.items():
        if names and victim not in names:
            continue
        tables = []
        for what, rows in OTHER_TABLES.get(victim, CIFAR_TABLES).items():
            asked = [row for row in rows if not chosen or row.name in chosen]
            tables.append(measure(asked, victim, o.seeds, o.samples, o.device, o.fresh, o.run))
            if tables[-1]:
                pages.append(section(f"{case.title}, {what}", asked, tables[-1], case.most))
                print(pages[-1], flush=True)
        if victim == "vgg":
            told = figures(*tables)
    if not chosen and not names and o.samples == SAMPLES:
        common.write_page(common.RESULTS / "peers.md", "Beside the strongest peers", __doc__ or "", "0-2", pages)
    common.finish(told)


if __name__ == "__main__":
    main()
