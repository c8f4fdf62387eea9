"""The section of a hardening: figures before and after, curves, and what it took to flip the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlab.auditing.stored import read_json
from rlab.comparison import Estimate
from rlab.core.result import AttackResult
from rlab.hardening.page import choose
from rlab.hardening.table import COLUMNS, interval, shares
from rlab.present.inline import figure_address, file_address
from rlab.present.page import Block, Facts, Gallery, Picture, Section, Table, Text
from rlab.present.plots import draw_sample


def harden_section(figures: Mapping[str, Any], folder: Path, samples: int = 3) -> Section:
    """Of a folder with `before` and `after` as attack runs, and the figures of both."""
    rows = [
        [heading, *(_cell(name, figures[when].get(name)) for when in ("before", "after"))]
        for name, heading in COLUMNS.items()
        if name in figures["before"]
    ]
    note = "Shares of the audit's samples that stay right, and the median L2 to flip; 95% bootstrap intervals over samples."
    blocks: list[Block] = [Table(["", "before", "after"], rows, "Before and after"), Text(note, quiet=True)]
    if figures["stopped"]:
        blocks.append(Text(figures["stopped"]))
    blocks.append(
        Gallery([Picture(file_address(folder / "robustness.png"), "As things get worse, and how far it takes")])
    )
    return Section("Hardening", [*blocks, *_pairs(folder, samples)])


def _pairs(folder: Path, samples: int) -> list[Block]:
    before, after = (AttackResult.load(folder / name) for name in ("before", "after"))
    shown = [
        Picture(
            figure_address(draw_sample(one, i), 90),
            f"what it takes {when}",
            f"{one.ids[i]}, {when}: {one.status[i].value}",
        )
        for i in choose(before, after, samples)
        for when, one in (("before hardening", before), ("after hardening", after))
    ]
    return [Text("What it takes to flip the same samples before and after."), Gallery(shown)] if shown else []


def _cell(name: str, said: Mapping[str, Any] | None) -> str:
    if said is None:
        return "–"
    one = Estimate(*(math.nan if said[key] is None else float(said[key]) for key in ("value", "low", "high")))
    return interval(one) if name == "agent_l2" else shares(one)


def training_section(folder: Path) -> Section:
    """What `rlab harden` logged, epoch by epoch."""
    log = read_json(folder / "log.json")
    s = log["summary"]
    rows = [
        [
            f"{one['number']}",
            *(_share(one[key]) for key in ("clean", "robust", "share")),
            f"{one['found']}",
            f"{one['rows']:,}",
        ]
        for one in log["history"]
    ]
    facts = {
        "clean accuracy": f"{s['clean_before']:.1%} before, {s['clean_after']:.1%} after",
        "under attack": f"{s['robust_before']:.1%} before, {s['robust_after']:.1%} after",
        "rows": f"{int(s['rows']):,} reached the model",
        **({"stopped": log["stopped"]} if log["stopped"] else {}),
        **({"classes": log["imbalance"]} if log["imbalance"] else {}),
    }
    head = ["epoch", "clean", "under attack", "of the way", "found", "rows"]
    return Section("Hardening", [Facts(facts), Table(head, rows, "On validation samples; epoch 0 is the original")])


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
