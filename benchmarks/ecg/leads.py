"""What groups of leads are worth: the same attack on twelve-lead records with all leads together, in groups, and alone.

The networks are public and were trained on folds 1 to 8 of PTB-XL; the records are those of fold 9 whose labels they all get right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from benchmarks.attacks import attack, flips, median, ratio
from benchmarks.data import real
from benchmarks.harness import Figures, Piece
from benchmarks.raw import Curves
from benchmarks.tables import interval, section, table
from benchmarks.victims.twelve_leads import TWELVE_LEAD_NETS, twelve_lead_file
from rlab.core.channels import EACH, TOGETHER, TWELVE
from rlab.data.batch import Batch
from rlab.data.load import load

KIND = "leads"
CHANNELS = {"together": TOGETHER, "groups": TWELVE, "each": EACH}
PALETTE = ("gaussian_noise@0.1mV", "dropout@1")
PATCH, RATE = 30, 100  # samples, and samples per second
SPLIT = "val"  # fold 9; the other folds are for development
WITHIN = (20, 60, 100, 200)
SEED = 0


@dataclass(frozen=True)
class LeadCase:
    """One way to group the leads, against one network."""

    net: str
    channels: str  # of CHANNELS
    records: int | None  # None: all that the network gets right
    budget: int

    @property
    def name(self) -> str:
        return f"{KIND}-{self.net}-{self.channels}-n{self.records or 'all'}-b{self.budget}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"net": self.net, "channels": CHANNELS[self.channels], "palette": PALETTE, "patch": PATCH, "split": SPLIT,
                "records": self.records, "budget": self.budget, "seed": SEED}  # fmt: skip


FULL = tuple(LeadCase(net, channels, None, 200) for net in TWELVE_LEAD_NETS for channels in CHANNELS)
QUICK = tuple(LeadCase("cnn7", channels, 24, 100) for channels in ("together", "groups"))


@cache
def records(net: str) -> Batch:
    """The records of fold 9 whose labels the network gets all right, in the order of the table."""
    batch = load(real("ptbxl"), split=SPLIT, classes=TWELVE_LEAD_NETS[net])
    right = ((twelve_lead_file(net)(batch.x) > 0) == (batch.y > 0)).all(1)
    return batch[right.nonzero().flatten().tolist()]


def measure(case: LeadCase, device: str) -> Curves:
    """Attack until the budget is spent; the networks run on the CPU."""
    result = attack(
        twelve_lead_file(case.net), records(case.net)[: case.records], goal="multilabel", palette=PALETTE, patch=PATCH,
        channels=CHANNELS[case.channels], budget=case.budget + 1, until="budget", seed=SEED,
    )  # fmt: skip
    return flips(result)


def pieces() -> Iterator[Piece]:
    for case in FULL:
        yield Piece.of_curves(case.name, KIND, case.settings, partial(measure, case))


def lead_figures(found: Mapping[LeadCase, Curves]) -> Figures:
    """Medians, and the default's over those of all leads together: its value for cnn7 is `lead_groups_ratio_100`."""
    figures: dict[str, Any] = {}
    for case, curves in found.items():
        for q in (q for q in WITHIN if q <= case.budget):
            figures[f"leads_{case.net}_{case.channels}_{q}"] = median([curves], q).value
    for case, curves in found.items():
        whole = [other for each, other in found.items() if (each.net, each.channels) == (case.net, "together")]
        if case.channels == "groups" and whole:
            name = "lead_groups_ratio_100" if case.net == "cnn7" else f"lead_groups_ratio_100_{case.net}"
            figures[name] = ratio([curves], whole, 100).value
    return figures


def lead_section(found: Mapping[LeadCase, Curves]) -> str:
    rows = []
    for case, curves in found.items():
        whole = next(other for each, other in found.items() if (each.net, each.channels) == (case.net, "together"))
        times = "1" if case.channels == "together" else interval(ratio([curves], [whole], 100), 2)
        cells = [interval(median([curves], q), 3) for q in WITHIN]
        rows.append((f"{case.net}, {case.channels}", str(len(curves)), *cells, times))
    about = (
        f"Records of PTB-XL's fold 9, twelve leads, 10 s at {RATE} Hz, goal `multilabel` (any label flips), palette "
        f"`{' '.join(PALETTE)}`, patches of {PATCH / RATE:g} s, policy `auto`. Groups are the default `{TWELVE}`. Median L2 in mV "
        "of the best flip within a number of queries."
    )
    heads = " | ".join(f"within {q}" for q in WITHIN)
    return section("Groups of leads", about, table(f"network, leads | records | {heads} | over together at 100", rows))
