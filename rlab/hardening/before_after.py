"""What the page of a hardening shows of the model before and after: flips of the same samples, and accuracy by severity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Text
from rlab.present.table import number
from rlab.results.result import AttackResult
from rlab.results.sample import Sample
from rlab.results.viewers import make_viewer, shelf

BEFORE, AFTER = "before", "after"  # measurements, and the folders of their attacks
GROUPS = {"corruptions": "filters of the palette", "held_out": "filters outside the palette"}


def pair_blocks(before: AttackResult, after: AttackResult, samples: int) -> list[Block]:
    rows = spread_samples(before, after, samples)
    if not rows:
        return [Text("The policy did not flip any sample of either model.")]
    viewers = [
        make_viewer(Sample.of(result, i), f"{when}-{i}", 2 * len(rows), _ending(result, i, when))
        for i in rows
        for when, result in ((BEFORE, before), (AFTER, after))
    ]
    shelved = shelf(viewers, columns=2)
    return [Text("The distortions that flip the same samples before and after."), *shelved]


def failure_blocks(after: AttackResult, samples: int) -> list[Block]:
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
    ends = {i: _ending(after, i, AFTER) for i in nearest}
    viewers = [make_viewer(Sample.of(after, i), f"fails-{i}", len(nearest), end) for i, end in ends.items()]
    return [Text(summary), *shelf(viewers, columns=2)]


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


def robustness_charts(curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Charts:
    """Accuracy by severity, within and outside the palette, and the share of samples not flipped within a distance."""
    charts = []
    for group, about in GROUPS.items():
        lines = [Curve(k, range(1, len(each[group]) + 1), each[group]) for k, each in curves.items() if group in each]
        charts += [Chart(f"accuracy under {about}", lines, "severity", percent=True)] if lines else []
    lines = []
    for name, each in curves.items():
        reached = [distance for distance in each["l2"] if math.isfinite(distance)]
        share = 1 - np.arange(len(reached) + 1) / max(1, len(each["l2"]))  # samples that were never flipped stay
        lines.append(Curve(name, [0.0, *reached], share))
    return Charts([*charts, Chart("not flipped by the policy within this L2", lines, "L2", percent=True, steps=True)])
