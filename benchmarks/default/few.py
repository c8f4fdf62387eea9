"""Patches and distances of the default attack against those of rlab 0.3.0, and what its stop gives up.

PYTHONPATH=CHECKOUT python benchmarks/default/few.py NAME   # measure another version's checkout; the raw files are named after NAME
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch

import rlab
from benchmarks.attacks import attack
from benchmarks.data import cifar_test
from benchmarks.harness import Figures, Piece, machine
from benchmarks.raw import Origin, Raw, Store, commit
from benchmarks.tables import section, table
from benchmarks.victims import cifar_victim
from rlab.data.batch import Batch
from rlab.data.load import load
from rlab.victims.base import Victim
from rlab.victims.zoo import demo_victim

CASES = {"digits": (40, "40 digits of the demo"), "vgg": (20, "20 CIFAR-10 test images, VGG")}
STOPS = ("steady", "budget")
GROUP = "few"
NOW, THEN = tuple(f"{case}-{until}" for case in CASES for until in STOPS), tuple(f"v030-{case}" for case in CASES)
KEYS = ("patches_ratio", "l2_ratio", "steady_regret", "steady_within_3")
NOTE = """
Both versions attack the same samples with nothing set but model and data. The first two ratios are ratios of medians, the
third is a median over samples. The end is a run that spends the budget of 1,000 queries. L2 is that of the stored flip, which
has the fewest patches of those found within 1.1 times the nearest distance. The patience, the price of a patch, and that factor
were chosen on CIFAR-10 test images 1000-1009 and from 3000 on, and on the last digits and beats of the demo; the wait before
patches have a price on 0.3.0's curves of photos, which anytime.md reports.
"""


def samples(case: str, device: str) -> tuple[Victim, Batch]:
    count = CASES[case][0]
    if case == "vgg":
        return cifar_victim("vgg", device), cifar_test(count)
    return demo_victim(case, device), load(f"demo:{case}", limit=count, order="first")


def measure(case: str, until: str, device: str) -> Raw:
    """The patches, distances and queries of all flipped samples; None for the others."""
    victim, batch = samples(case, device)
    result = attack(victim, batch, until=until)
    flipped = result.succeeded.tolist()
    values = {
        "patches": (result.assignment != 0).sum(1).tolist(),
        "l2": result.final["l2"].tolist(),
        "queries": result.queries.sum(1).tolist(),
    }
    return Raw(
        {name: [v if won else None for v, won in zip(row, flipped, strict=True)] for name, row in values.items()}
    )


def pieces() -> Iterator[Piece]:
    for case, until in product(CASES, STOPS):
        yield Piece(
            f"{case}-{until}", GROUP, {"samples": CASES[case][0], "until": until}, partial(measure, case, until)
        )


def measured(device: str) -> dict[str, Raw]:
    """All pieces, in two processes."""
    pairs = sorted(product(CASES, STOPS), key=lambda pair: pair != ("vgg", "budget"))  # the longest first
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        found = pool.map(measure, *zip(*pairs, strict=True), [device] * len(pairs))
        return {f"{case}-{until}": raw for (case, until), raw in zip(pairs, found, strict=True)}


def kept(store: Store, names: Iterable[str]) -> dict[str, Raw]:
    return {name: store.read(name) for name in names if name in store}


def figures(now: Mapping[str, Raw], then: Mapping[str, Raw]) -> Figures:
    """The figures of each case, and the least favourable of both."""
    found: dict[str, Any] = {}
    for case in CASES:
        if f"v030-{case}" in then and {f"{case}-{until}" for until in STOPS} <= now.keys():
            old, stop, end = then[f"v030-{case}"].numbers, *(now[f"{case}-{until}"].numbers for until in STOPS)
            found |= {f"{case}_{key}": value for key, value in compared(old, stop, end).items()}
    worst = {"patches_ratio": min, "l2_ratio": max, "steady_regret": max}
    every = {key: [found[f"{case}_{key}"] for case in CASES if f"{case}_{key}" in found] for key in worst}
    return found | {key: pick(every[key]) for key, pick in worst.items() if every[key]}


def compared(old: Mapping[str, Any], stop: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, float]:
    pairs = [(s, e) for s, e in zip(stop["l2"], end["l2"], strict=True) if s is not None and e is not None]
    return {
        "patches_ratio": middle(old["patches"]) / middle(stop["patches"]),
        "l2_ratio": middle(stop["l2"]) / middle(old["l2"]),
        "steady_regret": median(s / e for s, e in pairs),
        "steady_within_3": sum(s <= 1.03 * e for s, e in pairs) / len(pairs),
    }


def middle(values: Iterable[float | None]) -> float:
    return median(value for value in values if value is not None)


def sections(store: Store) -> Iterator[str]:
    held = kept(store, (*THEN, *NOW))
    rows, ratios, said = list[list[str]](), list[list[str]](), figures(held, held)
    for case, (_, words) in CASES.items():
        names = {"0.3.0": f"v030-{case}", "this version": f"{case}-steady", "all 1,000 queries": f"{case}-budget"}
        for version, name in names.items():
            if name in held:
                cells = (f"{middle(held[name].numbers[key]):.3g}" for key in ("patches", "l2", "queries"))
                rows.append([f"{words}: {version}", *cells])
        if f"{case}_patches_ratio" in said:
            ratios.append([words, *(f"{said[f'{case}_{key}']:.3g}" for key in KEYS)])
    heads = " | patches, 0.3.0 over now | L2, now over 0.3.0 | L2 at the stop over the end | within 3% of the end"
    if rows:
        tables = [table("medians of flips | patches | L2 | queries", rows), *([table(heads, ratios)] if ratios else [])]
        yield section("Few patches, and when to stop", *tables, " ".join(NOTE.split()))


if __name__ == "__main__":
    place = Store(Path(__file__).resolve().parents[1] / "results" / "raw" / "default")
    for each, (number, _) in CASES.items():
        origin = Origin(rlab.__version__, commit(), machine(), None, {"samples": number, "until": "steady"})
        place.write(f"{sys.argv[1]}-{each}", measure(each, "steady", "cpu"), origin)
