"""Tables, page sections and curves of a hardening: figures before and after, flips, and epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlab.data.kinds import kind_of
from rlab.hardening.epochs import epochs_page
from rlab.hardening.evaluation import RobustnessMeasurement
from rlab.hardening.run import LOG, Hardened
from rlab.hardening.tables import RULES, before_after_table, stored_estimate
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Page, Section, Text, write_page
from rlab.present.table import number
from rlab.results.plots.sample import Sample
from rlab.results.result import AttackResult
from rlab.results.viewers import make_viewer, shelf
from rlab.storage.files import read_json

GROUPS = {"corruptions": "filters of the palette", "held_out": "filters outside the palette"}


def write_before_after(
    path: Path, hardened: Hardened, measured: Mapping[str, RobustnessMeasurement], samples: int = 4
) -> Path:
    """Write the page of a hardening; `measured` has 'before' and 'after'."""
    before, after = measured["before"], measured["after"]
    assert before.attack is not None
    assert after.attack is not None
    table = before_after_table({when: m.estimates(before) for when, m in measured.items()})
    summary = [Text(line) for line in str(hardened).splitlines()]
    note = Text(f"Measured on test samples that the model was not trained on. {RULES}", quiet=True)
    curves = robustness_charts({when: measurement.means for when, measurement in measured.items()})
    sections = [
        Section("Figures", [*summary, table, note]),
        Section("Accuracy by severity", [curves]),
        Section("Flips before and after", _pairs(before.attack, after.attack, samples)),
        Section("Remaining failures", _failures(after.attack, samples)),
    ]
    return write_page(Page("Before and after hardening", sections), path)


def harden_section(figures: Mapping[str, Any], folder: Path, samples: int = 3) -> Section:
    """A section about a folder with the attack runs `before` and `after`, and their figures from JSON."""
    estimates = {
        when: {name: stored_estimate(figures[when][name]) for name in figures[when]} for when in ("before", "after")
    }
    note = "Shares of the audit's samples that the model gets right, and the median L2 to flip, with 95% bootstrap intervals."
    blocks: list[Block] = [before_after_table(estimates), Text(note, quiet=True)]
    blocks += [Text(figures["stopped"])] if figures["stopped"] else []
    blocks.append(robustness_charts(figures["curves"]))
    before, after = (AttackResult.load(folder / when) for when in ("before", "after"))
    return Section("Hardening", [*blocks, *_pairs(before, after, samples)])


def _pairs(before: AttackResult, after: AttackResult, samples: int) -> list[Block]:
    rows = spread_samples(before, after, samples)
    if not rows:
        return [Text("The policy did not flip any sample of either model.")]
    viewers = [
        make_viewer(Sample.of(result, i), f"{when}-{i}", 2 * len(rows), _ending(result, i, when))
        for i in rows
        for when, result in (("before", before), ("after", after))
    ]
    return [
        Text("The distortions that flip the same samples before and after."),
        *shelf(viewers, kind_of(before.setting.size), columns=2),
    ]


def _failures(after: AttackResult, samples: int) -> list[Block]:
    """The samples on which the smallest distortions flip the hardened model."""
    flipped = after.succeeded.nonzero().flatten()
    if not len(flipped):
        return [Text("The policy did not flip any sample that the model got right.")]
    nearest = flipped[after.final["l2"][flipped].argsort()][:samples].tolist()
    wrong = len(after) - int(after.attacked.sum())
    summary = (
        f"Of {len(after)} samples, the model is wrong on {wrong} unchanged ones and {len(flipped)} more can be flipped; "
        "these need the smallest distortions."
    )
    viewers = [
        make_viewer(Sample.of(after, i), f"fails-{i}", len(nearest), _ending(after, i, "after")) for i in nearest
    ]
    return [Text(summary), *shelf(viewers, kind_of(after.setting.size), columns=2)]


def _ending(result: AttackResult, i: int, when: str) -> str:
    distance, patches = number(float(result.final["l2"][i])), int(result.final["l0_patches"][i])
    return f"{result.ids[i]}, {when}: L2 {distance}, {patches} of {len(result.setting.grid)} patches"


def spread_samples(before: AttackResult, after: AttackResult, samples: int) -> list[int]:
    """Samples that both models got right and the policy flipped before, spread over the increase in distance."""
    both = (before.succeeded & after.attacked).nonzero().flatten().tolist()
    ratios = [float(after.final["l2"][i] / before.final["l2"][i]) for i in both]
    order = [both[j] for j in np.argsort(ratios, kind="stable")]
    places = np.linspace(0, len(order) - 1, min(samples, len(order))).round().astype(int)
    return [order[at] for at in places.tolist()]


def hardening_page(folder: Path) -> Page:
    """The page of a `rlab harden` folder: figures before and after, epochs, and options."""
    return epochs_page(read_json(folder / LOG), f"Hardening {folder.name}")


def robustness_charts(curves: Mapping[str, Mapping[str, Sequence[float | str]]]) -> Charts:
    """Accuracy by severity, within and outside the palette, and the share of samples not flipped within a distance.

    `curves` are those of `RobustnessMeasurement.means` by name, perhaps read from JSON.
    """
    charts = []
    for group, about in GROUPS.items():
        means = {name: list(map(float, each[group])) for name, each in curves.items() if group in each}
        lines = [Curve(name, range(1, len(mean) + 1), mean) for name, mean in means.items()]
        charts += [Chart(f"accuracy under {about}", lines, "severity", percent=True)] if lines else []
    lines = []
    for name, each in curves.items():
        reached = [distance for distance in map(float, each["l2"]) if math.isfinite(distance)]
        share = 1 - np.arange(len(reached) + 1) / max(1, len(each["l2"]))  # samples that were never flipped stay
        lines.append(Curve(name, [0.0, *reached], share))
    return Charts([*charts, Chart("not flipped by the policy within this L2", lines, "L2", percent=True, steps=True)])
