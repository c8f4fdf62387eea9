"""Our attacks next to the strongest published ones, on free pixels and inside a natural palette.

python -m benchmarks.peers                     # run the rows that have no raw file (hours), then write results/peers.md
python -m benchmarks.peers --page              # write the page from the raw files
python -m benchmarks.peers --only vgg --attacks gfcs,square_min --device cuda    # some rows of one victim
python -m benchmarks.peers --quick             # ours on few images; peers from their raw files
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product, takewhile
from typing import Any

import numpy as np

from benchmarks.attacks import correct, flipped, median, ratio, tails, within
from benchmarks.data import Absent
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.peers.cases import (
    CASES,
    CIFAR_TABLES,
    FREE_CLIPS,
    FREE_PHOTOS,
    OURS,
    OURS_ALONE,
    OURS_INSIDE,
    PHOTO_TABLES,
    SMALL,
    TABLES,
    Row,
)  # fmt: skip
from benchmarks.raw import RAW, Curves, Store
from benchmarks.tables import interval, share, table
from benchmarks.tables import section as section_of
from rlab.errors import MissingExtra
from rlab.stats import Estimate

PAPER = "Sample photos are one of each of 200 even classes of ImageNet; they may be training images of the victims."
QUERIES = (1, 2, 3, 4, 5, 6, 20, 50, 100, 500)
SHARES = (1, 5, 20, 100)
OWN = ("pixels", "palette", "auto", "belief")  # how the names of our rows begin
PHOTOS, CLIPS = "lite1", "slowfast"  # the victims of two figures
QUICK_PHOTOS, QUICK_CLIPS = (4, 20), (4, 50)  # samples and queries of the quick run
Table = Mapping[str, list[Curves]]  # by row, each seed's curves
RULES = """
A figure is the median L2 (values in [0, 1]) of the best flip within q queries, over the samples that the victim
classifies correctly (CIFAR-10 test images, photos, clips) and over seeds; a sample without a flip counts as infinitely
far. A query is any row that reaches the victim during the search and the reduction after the flip. Nobody is charged
for the clean prediction, which tells all attacks where to start, for the prediction that verifies a flip, or for
queries to surrogates. Brackets are 95% bootstrap intervals over images and seeds. A ratio is our median over that of
the best other row at the same q; if its interval includes 1 there is no difference. Surrogates are ResNet-20,
ConvMixer, an all-convolutional net, the same trained against perturbations, and inverted residuals; for the photos'
SqueezeNet EfficientNet-Lite0 and Lite1, for their other victims Lite0 and SqueezeNet; for clips C3D, TSN and TSM. No
victim is among its own surrogates. Ours shows each surrogate moved and mirrored copies of the input; a peer "of 10
copies" has gradients averaged over all of them. On clips ours also searched for the frames that count, which later
versions do not. Peers are written from their papers (`benchmarks/peers`), with their usual step scaled to the data.
`sparse_rs` changes few pixels and `patch_rs` one square as much as they like, so that their L2 shows what they change
and not how well they search; V-BAD has 10 queries for an estimate instead of 48. Photos are of the NIPS 2017 challenge
at 224 pixels, which MobileNet shrinks to 192 itself. All rows of a table have the same samples and the same budget.
Those that stop at their flip continue by bisection towards the original (inside a palette, along their own push),
because ours reduces its flip too. Inside the palette, each step of a peer is followed by the assignment of palette
entries that gains most along it for its squared L2. On the VGG, attacks that draw random numbers have three seeds;
everything else has one. Means are over flips alone; medians and 95th percentiles count all samples. Our settings were
chosen on test images 1000-1399, on other sample photos and on other clips than those of the tables, with the same
victims; steps and strengths of peers are those of their papers, or the better of the two shown.
"""


def best_peer(rows: Table, queries: int, begins: str = "") -> str | None:
    """The row of others with the smallest median, if any has one; `begins` is how its name begins."""
    others = [name for name in rows if not name.startswith((*OWN, "hopskipjump")) and name.startswith(begins)]
    medians = {name: median(rows[name], queries).value for name in others}
    name = min(medians, key=lambda name: medians[name], default=None)
    return name if name is not None and math.isfinite(medians[name]) else None


def section(title: str, rows: Sequence[Row], found: Table, most: int) -> str:
    queries = [q for q in QUERIES if q <= most]
    shown = [row for row in rows if row.name in found]
    first, body = shown[0].name, []
    for row in shown:
        seeds = found[row.name]
        cells = (interval(median(seeds, q)) for q in queries)
        body.append((row.name, *cells, str(len(seeds)), str(len(seeds[0])), row.needs))
    if first.removesuffix(SMALL) in (OURS, OURS_INSIDE):
        best = {q: best_peer(found, q) for q in queries}
        cells = (_versus(found[first], found[name], q, name) if name else "" for q, name in best.items())
        body.append((f"{first} ÷ best peer", *cells, "", "", ""))
    counts = [q for q in SHARES if q <= most]
    shares = [(row.name, *(share(flipped(found[row.name], q)) for q in counts)) for row in shown]
    far = table(("L2 within", *map(str, queries), "seeds", "samples", "needs"), body)
    note = f"{len(found[first][0])} samples that the victim classifies correctly."
    if absent := [row.name for row in rows if row.name not in found]:
        note += f" Not run yet: {', '.join(absent)}."
    ends = tails({row.name: found[row.name] for row in shown}, most)
    return section_of(title, far, table(("flipped within", *map(str, counts)), shares), ends, note)


def _versus(ours: Sequence[Curves], other: Sequence[Curves], queries: int, name: str) -> str:
    e = ratio(ours, other, queries)
    return "–" if math.isnan(e.value) else f"{interval(e)}{' no difference' if e.includes(1.0) else ''}, {name}"


def pieces(options: Options) -> Iterator[Piece]:
    """The first part of every row comes before the second of any, and all parts before a second seed."""
    chosen = {name for name in options.attacks.split(",") if name}
    for victim, case in CASES.items():
        rows = [row for rows in TABLES[victim].values() for row in rows]
        for seed, part, row in product(range(case.seeds), range(case.parts), rows):
            if seed < row.seeds and (not chosen or row.name in chosen):
                make, settings = partial(row.part, victim, seed, part), row.settings(victim, seed, part)
                yield Piece.of_curves(row.file(victim, seed, part), victim, settings, make)


def kept(store: Store, rows: Sequence[Row], victim: str) -> dict[str, list[Curves]]:
    """Each seed's curves of the rows that have raw files; where a case has parts, over those that all these rows have."""
    found: dict[str, list[Curves]] = {}
    for row in rows:
        for seed in range(row.seeds):
            files = [row.file(victim, seed, part) for part in range(CASES[victim].parts)]
            there = list(takewhile(store.__contains__, files))
            whole = tuple(chain.from_iterable(store.curves({name: name for name in there}).values()))
            if whole and (row.name not in found or len(whole) == len(found[row.name][0])):
                found.setdefault(row.name, []).append(whole)
    least = min((len(seeds[0]) for seeds in found.values()), default=0) if CASES[victim].part else None
    return {name: [curves[:least] for curves in seeds] for name, seeds in found.items()}


def sections(store: Store) -> Iterator[str]:
    for victim, case in CASES.items():
        for what, rows in TABLES[victim].items():
            if found := kept(store, rows, victim):
                yield section(f"{case.title}, {what}", rows, found, rows[0].budget)
    yield from paper_section(store)


def paper_section(store: Store) -> Iterator[str]:
    """Our distances on photos within each budget, next to those of the paper."""
    rows = [row for rows in PHOTO_TABLES.values() for row in rows if row.name.startswith(OWN)]
    victims = [victim for victim in TABLES if "photos" in CASES[victim].title]
    for budget in sorted({row.budget for row in rows}):
        body = []
        for victim, row in product(victims, (row for row in rows if row.budget == budget)):
            for seeds in kept(store, [row], victim).values():
                far = within(seeds[:1], budget)[0]
                won = far[np.isfinite(far)]
                cells = (f"{value:.3g}" for value in (won.mean(), np.median(won), won.max())) if len(won) else "–––"
                body.append((f"{CASES[victim].title}, {row.name}", f"{len(won)} of {len(far)}", *cells))
        if body:
            body.append(("RLAB paper, ImageNet (other photos and networks)", "", "2.48", "", "4.74"))
            heads = f"within {budget:,} | flipped | average L2 of flips | median | largest"
            yield section_of(f"Photos and the paper's figure, {budget:,} queries", table(heads, body), PAPER)


def figures(store: Store) -> Figures:
    cifar = (kept(store, rows, "vgg") for rows in CIFAR_TABLES.values())
    return keyed(*cifar, photos=kept(store, FREE_PHOTOS, PHOTOS), clips=kept(store, FREE_CLIPS, CLIPS))


def keyed(free: Table, alone: Table, inside: Table, targeted: Table, *, photos: Table, clips: Table) -> dict[str, Any]:
    """Figures by the names that scripts rely on; NaN where a row is missing."""

    def two(rows: Table, first: str, other: str | None, queries: int) -> float:
        there = first in rows and other is not None and other in rows
        return ratio(rows[first], rows[other], queries).value if there and other is not None else math.nan

    def one(name: str, of: Callable[[Sequence[Curves], int], Estimate], queries: int) -> float:
        return of(free[name], queries).value if name in free else math.nan

    return {
        "vgg_l2_at_3": one(OURS, median, 3),
        "vgg_gfcs_l2_at_4": one("gfcs", median, 4),
        "vgg_ratio_gfcs_20": two(free, OURS, "gfcs", 20),
        "vgg_success_5": one(OURS, flipped, 5),
        "noprior_ratio_square_500": two(alone, OURS_ALONE, best_peer(alone, 500, "square_min"), 500),
        "palette_ratio_best_peer_20": two(inside, OURS_INSIDE, best_peer(inside, 20), 20),
        "targeted_ratio_square_50": two(targeted, "auto targeted", "square targeted", 50),
        "photos_ratio_20": two(photos, OURS, best_peer(photos, 20), 20),
        "clips_ratio_50": two(clips, OURS, best_peer(clips, 50), 50),
    }


def quick(options: Options) -> Figures:
    """Our rows run now on few images and one seed; peers come from raw files, and three of them run now without."""
    few = {OURS: (3, 20), OURS_ALONE: (5, 500), OURS_INSIDE: (3, 20)}
    peers = {"gfcs": (3, 20), "square_min": (5, 500), "gfcs+palette@2": (3, 20)}
    store, found = Store(RAW / "peers"), []
    chosen = {name for name in options.attacks.split(",") if name}
    for rows in CIFAR_TABLES.values():
        each = dict[str, list[Curves]]()
        for row in (row for row in rows if not chosen or row.name in chosen):
            stored = {} if row.name in few else store.curves({row.name: row.file("vgg", 0)})
            if stored:
                each[row.name] = [stored[row.name]]
            elif row.name in few | peers:
                samples, budget = (few | peers)[row.name]
                each[row.name] = [replace(row, budget=budget).curves("vgg", 0, samples, options.device)]
        found.append(each)
    for name, curves in (item for each in found for item in each.items()):
        print(f"{name}: {len(curves[0])} images, L2 {median(curves, 20).value:.3f} within 20 queries")
    few_photos = _few(store, FREE_PHOTOS, PHOTOS, QUICK_PHOTOS, options.device)
    few_clips = _few(store, FREE_CLIPS, CLIPS, QUICK_CLIPS, options.device)
    return keyed(*found, photos=few_photos, clips=few_clips)


def _few(store: Store, rows: Sequence[Row], victim: str, size: tuple[int, int], device: str) -> Table:
    """Ours on a few samples spread over those that the victim gets right, run now; all peers that have raw files, on the same."""
    others = {name: seeds[:1] for name, seeds in kept(store, rows[1:], victim).items()}
    if not others:
        print(f"skipped {victim}: no peer has a raw file")
        return {}
    count, (samples, budget) = min(len(seeds[0]) for seeds in others.values()), size
    chosen = np.linspace(0, count - 1, min(samples, count)).astype(int).tolist()
    try:
        right = correct(CASES[victim].load(device), CASES[victim].data(CASES[victim].samples))
        if len(right) != count:
            raise Absent(f"the peers attacked {count} samples, but here the model gets {len(right)} right")
        own = replace(rows[0], budget=budget).of(victim, 0, right[chosen], device)
    except (Absent, MissingExtra) as why:
        print(f"skipped {victim}: {why}")
        return {}
    found = {rows[0].name: [own]} | {name: [tuple(curves[at] for at in chosen)] for name, (curves,) in others.items()}
    for name, curves in found.items():
        print(
            f"{victim}, {name}: {len(curves[0])} samples, L2 {median(curves, budget).value:.3f} within {budget} queries"
        )
    return found


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attacks", default="", help="names of rows, separated by commas (default: all)")


TITLE = "Next to the strongest peers"
CLAIM = Claim("peers", TITLE, __doc__, RULES, quick, pieces, sections, figures, flags, tuple(CASES))
