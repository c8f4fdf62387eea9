"""Models that return only labels: our search of free pixels next to HopSkipJump and SurFree, on CIFAR-10.

python -m benchmarks.labels                                # run the rows that have no raw file, then write results/labels.md
python -m benchmarks.labels --page                         # write the page from the raw files
python -m benchmarks.labels --quick                        # few images of ResNet-20
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.attacks import median, ratio, tails
from benchmarks.harness import Claim, Figures, Options, Piece
from benchmarks.labels import cases
from benchmarks.labels.cases import OURS, PEER, QUERIES, ROWS, SAMPLES, SURFREE, UNTRAINED, VICTIMS
from benchmarks.peers.cases import CASES
from benchmarks.raw import Curves, Store
from benchmarks.tables import interval, table
from benchmarks.tables import section as section_of
from benchmarks.victims import cifar_victim

RULES = """
A figure is the median L2 (values in [0, 1]) of the best flip within q queries, over test images that the victim
classifies correctly; an image without a flip counts as infinitely far. A query is any row that reaches the victim
during the search; nobody is charged for the clean prediction and for the one that verifies a flip. Every attack sees
the winning class and nothing else. Brackets are 95% bootstrap intervals over images. A ratio is our median over the
peer's at the same q; if its interval includes 1 there is no difference. `labels` is `rlab.attack(palette="pixels")`
with default settings: it starts with the directions of the shipped prior for small images, which was trained on other
models (ResNet-20 among them, neither VGG nor WRN). `labels, nothing trained` starts with noise of high frequencies,
stronger in the middle of the picture. `hopskipjump` and `surfree` are written from their papers, with their constants;
SurFree's directions are plain noise of low frequencies. Our settings were chosen on test images 1000-1399 of ResNet-20.
The spectrum of the noise is that of gradients of ResNet-20, ConvMixer, VGG and WRN on images 1000-1099, so the victims
were seen but the reported images were not.
"""


def file(row: str, victim: str) -> str:
    return f"{victim}-{row.replace(' ', '')}"


def pieces(options: Options) -> Iterator[Piece]:
    for victim in VICTIMS:
        for row in ROWS:
            settings = {"victim": victim, "attack": row, "samples": SAMPLES, "budget": QUERIES[-1]}
            make = partial(curves_of, row, victim)
            yield Piece.of_curves(file(row, victim), victim, settings, make)


def curves_of(row: str, victim: str, device: str) -> Curves:
    return cases.curves(row, lambda: CASES[victim].load(device), SAMPLES, QUERIES[-1])


def kept(store: Store, victim: str) -> dict[str, Curves]:
    return store.curves({row: file(row, victim) for row in ROWS})


def section(victim: str, rows: Mapping[str, Curves]) -> str:
    body = [(row, *(interval(median([curves], q)) for q in QUERIES), str(len(curves))) for row, curves in rows.items()]
    for peer in (PEER, SURFREE):
        for row, ratios in _ratios(rows, peer).items():
            body.append((f"{row} ÷ {peer}", *map(interval, ratios.values()), ""))
    ends = tails({row: [curves] for row, curves in rows.items()}, QUERIES[-1])
    return section_of(CASES[victim].title, table(("L2 within", *map(str, QUERIES), "images"), body), ends)


def _ratios(rows: Mapping[str, Curves], peer: str = PEER) -> dict[str, dict[int, Any]]:
    own = [row for row in rows if peer in rows and row.startswith(OURS)]
    return {row: {q: ratio([rows[row]], [rows[peer]], q) for q in QUERIES} for row in own}


def sections(store: Store) -> Iterator[str]:
    for victim in VICTIMS:
        if rows := kept(store, victim):
            yield section(victim, rows)


def figures(store: Store) -> Figures:
    return {name: value for victim in VICTIMS for name, value in keyed(victim, kept(store, victim)).items()}


def keyed(victim: str, rows: Mapping[str, Curves]) -> Figures:
    ratios = _ratios(rows).items()
    return {f"{victim} {row} {q}": e.value for row, each in ratios for q, e in each.items() if q >= 100}


def quick_ratio() -> float:
    """Ours with nothing trained over HopSkipJump on a few images of ResNet-20, which the prior was trained on."""
    load = partial(cifar_victim, "resnet20")
    most = cases.QUICK_QUERIES
    rows = {row: cases.curves(row, load, cases.QUICK_IMAGES, most) for row in (UNTRAINED, PEER)}
    for row, curves in rows.items():
        print(f"{row}: {len(curves)} images, L2 {median([curves], most).value:.3f} within {most} queries")
    return ratio([rows[UNTRAINED]], [rows[PEER]], most).value


def quick(options: Options) -> Figures:
    return {"label_only_ratio_500": quick_ratio()}


CLAIM = Claim("labels", "Labels alone", __doc__, RULES, quick, pieces, sections, figures, cases=VICTIMS)
