"""`auto` beside `square` and `random` on whole records of twelve leads, with the clinical palette and the papers'.

The networks and records are those of `benchmarks.ecg.leads`: public networks, and records of fold 9 that they get all right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.attacks import HEADLINE_SEEDS, attack, flipped, flips, median, over_best
from benchmarks.ecg.leads import PATCH, RATE, SPLIT, WITHIN, records
from benchmarks.harness import Figures, Piece
from benchmarks.raw import Curves, Store, to_curves
from benchmarks.tables import interval, section, share, table
from benchmarks.victims.twelve_leads import TWELVE_LEAD_NETS, twelve_lead_file
from rlab.core.channels import TWELVE
from rlab.stats import Estimate

KIND = "twelve"
OURS, OTHERS = "auto", ("square", "random")
PALETTES = ("clinical", "paper")
HEADLINE = ("cnn3", "clinical")  # of README's row
AIM = 0.4  # of twelve_ratio_100


@dataclass(frozen=True)
class TwelveCase:
    """One policy with one palette, against one network."""

    net: str
    palette: str
    policy: str
    records: int
    budget: int

    @property
    def seeds(self) -> int:
        return HEADLINE_SEEDS if (self.net, self.palette) == HEADLINE else 1

    def file(self, seed: int) -> str:
        behind = f"-s{seed}" if seed else ""
        return f"{KIND}-{self.net}-{self.palette}-{self.policy}-n{self.records}-b{self.budget}{behind}"

    def settings(self, seed: int) -> dict[str, Any]:
        return {"net": self.net, "palette": self.palette, "policy": self.policy, "channels": TWELVE, "patch": PATCH,
                "split": SPLIT, "records": self.records, "budget": self.budget, "seed": seed}  # fmt: skip


FULL = tuple(
    TwelveCase(net, palette, policy, 30, 200)
    for net in TWELVE_LEAD_NETS
    for palette in PALETTES
    for policy in (OURS, *OTHERS)
)
QUICK = tuple(TwelveCase(*HEADLINE, policy, 30, 100) for policy in (OURS, *OTHERS))
Found = Mapping[TwelveCase, Sequence[Curves]]  # by seed


def measure(case: TwelveCase, device: str, seed: int = 0) -> Curves:
    """Attack until the budget is spent; the networks run on the CPU."""
    result = attack(
        twelve_lead_file(case.net), records(case.net)[: case.records], goal="multilabel", palette=case.palette, patch=PATCH,
        channels=TWELVE, policy=case.policy, budget=case.budget + 1, until="budget", seed=seed,
    )  # fmt: skip
    return flips(result)


def pieces() -> Iterator[Piece]:
    for case in FULL:
        for seed in range(case.seeds):
            yield Piece.of_curves(case.file(seed), KIND, case.settings(seed), partial(measure, case, seed=seed))


def stored(store: Store) -> dict[TwelveCase, list[Curves]]:
    """Each seed's curves of all cases; none until they are complete."""
    files = {case: [case.file(seed) for seed in range(case.seeds)] for case in FULL}
    if any(name not in store for names in files.values() for name in names):
        return {}
    return {case: [to_curves(store.read(name).numbers) for name in names] for case, names in files.items()}


def over_better(found: Found, net: str, palette: str, queries: int) -> Estimate:
    """The median distance of `auto` over that of `square` or `random`, whichever is nearer; 0 if both are infinite."""
    own = {case.policy: seeds for case, seeds in found.items() if (case.net, case.palette) == (net, palette)}
    return over_best(own[OURS], [own[policy] for policy in OTHERS], queries)


def twelve_figures(found: Found) -> Figures:
    """Medians and shares of flips, and ratios; that of cnn3 with the clinical palette is `twelve_ratio_100`."""
    figures: dict[str, Any] = {}
    for case, seeds in found.items():
        key = f"twelve_{case.net}_{case.palette}_{case.policy}"
        figures |= {f"{key}_{q}": median(seeds, q).value for q in WITHIN if q <= case.budget}
        figures[f"{key}_flipped_100"] = flipped(seeds, 100).value
    for net, palette in dict.fromkeys((case.net, case.palette) for case in found):
        name = "twelve_ratio_100" if (net, palette) == HEADLINE else f"twelve_ratio_100_{net}_{palette}"
        figures[name] = over_better(found, net, palette, 100).value
    return figures


def twelve_section(found: Found) -> str:
    rows = []
    for case, seeds in found.items():
        times = interval(over_better(found, case.net, case.palette, 100), 2) if case.policy == OURS else ""
        cells = [interval(median(seeds, q), 3) for q in WITHIN if q <= case.budget]
        rows.append((f"{case.net}, {case.palette}, {case.policy}", share(flipped(seeds, 100)), *cells, times))
    case = next(iter(found))
    about = (
        f"The first {case.records} records of PTB-XL's fold 9 that the network gets all right, twelve leads, 10 s at {RATE} Hz, "
        f"goal `multilabel` (any label flips), patches of {PATCH / RATE:g} s in the lead groups `{TWELVE}`, {case.budget} queries "
        "for each record, all of which every policy spends. Median L2 in mV of the best flip within a number of queries; it is "
        "infinite (inf) until more than half of the records are flipped. The last column is the median of `auto` over the better "
        "one of `square` and `random` at 100 queries, 0 where both are infinite; the aim with the clinical palette is at most "
        f"{AIM}. {HEADLINE[0]} with the {HEADLINE[1]} palette has {HEADLINE_SEEDS} seeds, the other rows have one."
    )
    heads = " | ".join(f"within {q}" for q in WITHIN if q <= case.budget)
    head = f"network, palette, policy | flipped within 100 | {heads} | over the better"
    return section("Twelve leads", about, table(head, rows))
