"""Models that tell only labels: our search of free pixels beside HopSkipJump, on CIFAR-10.

python -m benchmarks.labels                                # what is kept in benchmarks/results/raw, as benchmarks/results/labels.md
python -m benchmarks.labels --raw out --device cuda        # run what is not in this folder, into it
python -m benchmarks.labels --run --rows hopskipjump       # some rows only: printed and kept, no page
python -m benchmarks.labels --quick                        # under a minute: few images of ResNet-20, writes nothing

A figure is the median over test images that the victim has right of the L2 (values in [0, 1]) of the best flip within q
queries; no flip counts as infinitely far. A query is any row that reaches the victim in the search; the clean prediction and
the one that verifies a flip count for nobody. Every attack hears the winning class and nothing else. Brackets are 95% bootstrap
intervals that draw images; a ratio is our median over HopSkipJump's at the same q, and where its interval holds 1 it is no
difference. `labels` is `rlab.attack(palette="pixels")` as it comes: it opens with the directions of the prior that ships for
small images, which was trained on other models (ResNet-20 among them, neither VGG nor WRN). `labels, nothing trained` opens
with noise, of high frequencies and more of it in the middle of the picture. `labels + surrogates` has the gradients of five
other models. `hopskipjump` is written from its paper, with its constants; `foolbox:hop_skip_jump` is that of foolbox 3.3.4,
where it was run. Settings of ours were chosen on test images 1000-1399 of ResNet-20; the spectrum of the noise is that of gradients
of ResNet-20, ConvMixer, VGG and WRN on images 1000-1099, so the victims were seen, the images reported on were not.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import common
from benchmarks.peers import median, ratio
from benchmarks.peers_rows import Curves, contender
from benchmarks.peers_victims import CASES, cifar_surrogates
from rlab.data.batch import Batch
from rlab.errors import MissingExtra
from rlab.policies.pixels import PixelPolicy
from rlab.priors.base import NoPrior
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim

OURS, UNTRAINED, GUIDED, PEER, LIBRARY = (
    "labels",
    "labels, nothing trained",
    "labels + surrogates",
    "hopskipjump",
    "foolbox:hop_skip_jump",
)
VICTIMS, SAMPLES, QUERIES = ("vgg", "wide_resnet"), 24, (20, 50, 100, 200, 500, 1000)
QUICK, QUICK_QUERIES = 4, 500
Run = Callable[[TorchVictim, Batch, int], Curves]


def ours(trained: bool = True, guided: bool = False) -> Run:
    def run(victim: TorchVictim, batch: Batch, budget: int) -> Curves:
        models = cifar_surrogates(str(victim.device)) if guided else None
        # Two more rows than the search may ask: the clean prediction and the verification of the flip.
        options = {
            "palette": "pixels",
            "budget": budget + 2,
            "until": "budget",
            "chunk": len(batch),
            "surrogate": models,
        }
        attack = make_attack(batch, **options)
        if not trained:
            assert isinstance(attack.policy, PixelPolicy)
            attack = replace(attack, policy=replace(attack.policy, opening=NoPrior()))
        result = run_attack(attack, victim, batch)
        pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
        return [tuple((q - 1, far) for q, far in flips) for flips, attacked in pairs if attacked]

    return run


def peer(spec: str) -> Run:
    def run(victim: TorchVictim, batch: Batch, budget: int) -> Curves:
        outcome = contender(spec, ())(victim, batch, budget, 0)
        return [flips for flips, right in zip(outcome.improvements, outcome.attacked.tolist(), strict=True) if right]

    return run


ROWS: Mapping[str, Run] = {
    OURS: ours(),
    UNTRAINED: ours(trained=False),
    GUIDED: ours(guided=True),
    PEER: peer(PEER),
    LIBRARY: peer(LIBRARY),
}
USUAL = (OURS, UNTRAINED, PEER)


def fresh(row: str, load: Callable[[], TorchVictim], samples: int, budget: int) -> Curves:
    """Run now, on a victim whose scores nobody sees."""
    victim = load()
    victim.outputs = "labels"
    return ROWS[row](victim, common.cifar_test(samples), budget)


def kept(row: str, victim: str, o: argparse.Namespace) -> Curves | None:
    """As kept, or run now where that is asked for."""
    name = f"labels-{victim}-{row.replace(' ', '').replace(':', '-')}-n{o.samples}"

    def make() -> dict[str, Any]:
        curves = fresh(row, lambda: CASES[victim].load(o.device), o.samples, QUERIES[-1])
        return {"improvements": [[[q, round(far, 4)] for q, far in flips] for flips in curves]}

    if not o.run and not (common.RAW / f"{name}.json").exists():
        return None
    values = common.kept_values(name, o.fresh, make)
    return [tuple((int(q), float(far)) for q, far in flips) for flips in values["improvements"]]


def section(victim: str, table: Mapping[str, Curves], figures: dict[str, Any]) -> str:
    body = [
        (row, *(common.interval(median([curves], q)) for q in QUERIES), str(len(curves)))
        for row, curves in table.items()
    ]
    for row, curves in table.items():
        if PEER in table and row.startswith(OURS):
            ratios = [ratio([curves], [table[PEER]], q) for q in QUERIES]
            body.append((f"{row} ÷ {PEER}", *map(common.interval, ratios), ""))
            figures |= {f"{victim} {row} {q}": e.value for q, e in zip(QUERIES, ratios, strict=True) if q >= 100}
    heading = ("L2 within", *map(str, QUERIES), "images")
    return f"## {CASES[victim].title}\n\n{common.table(heading, body)}"


def quick_ratio(images: int = QUICK, queries: int = QUICK_QUERIES) -> float:
    """Ours with nothing trained over HopSkipJump, medians of a few images of ResNet-20, of which the prior has seen too much."""
    table = {row: fresh(row, lambda: common.cifar_victim("resnet20"), images, queries) for row in (UNTRAINED, PEER)}
    for row, curves in table.items():
        print(f"{row}: {len(curves)} images, L2 {median([curves], queries).value:.3f} within {queries} queries")
    return ratio([table[UNTRAINED]], [table[PEER]], queries).value


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victim", default=",".join(VICTIMS), help="with commas")
    parser.add_argument("--rows", default="", help=f"some of {', '.join(ROWS)}, with ; between")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--run", action="store_true", help="run what is not kept")
    parser.add_argument("--fresh", action="store_true", help="with --run: what is kept too")
    parser.add_argument("--raw", type=Path, help="another folder for what is kept, which implies --run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    o = parser.parse_args(words)
    if o.quick:
        return common.finish({"label_only_ratio_500": quick_ratio()})
    common.RAW, o.run = o.raw or common.RAW, o.run or o.raw is not None
    chosen = [row for row in o.rows.split(";") if row]
    pages, figures = [], dict[str, Any]()
    for victim in o.victim.split(","):
        table = dict[str, Curves]()
        for row in chosen or (USUAL if o.run else ROWS):
            try:
                if (curves := kept(row, victim, o)) is not None:
                    table[row] = curves
            except MissingExtra as why:
                print(f"{row} is left out: {why}")
        if table:
            pages.append(section(victim, table, figures))
            print(pages[-1], flush=True)
    if not chosen and pages and o.victim == ",".join(VICTIMS) and o.samples == SAMPLES:
        common.write_page(common.RESULTS / "labels.md", "Labels alone", __doc__ or "", 0, pages)
    common.finish(figures)


if __name__ == "__main__":
    main()
