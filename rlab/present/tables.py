"""Tables that fit a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table
from torch import Tensor

from rlab.core.breakdown import by_class, by_distortion, by_label, has_classes
from rlab.core.distances import frames
from rlab.core.result import AttackResult, Status
from rlab.diagnosis import Finding
from rlab.filters import FAMILIES
from rlab.victims.base import PHASES


def number(value: float, digits: int = 3) -> str:
    """A figure as people read it; a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def summary_table(results: Mapping[str, AttackResult], title: str = "") -> Table:
    """One row a run: what happened, at what cost, how far."""
    table = Table(title=title or None, title_justify="left")
    table.add_column("run", overflow="fold")
    for heading in ("flipped", "queries\nsearch +\ncleanup", "L2 at\nflip", "L2 after\ncleanup", "patches", "verified"):
        table.add_column(heading, justify="right", no_wrap=True)  # a figure must not be cut; the name gives way
    for name, result in results.items():
        table.add_row(name, *_summary_cells(result))
    return table


def _summary_cells(result: AttackResult) -> list[str]:
    s = result.summary()
    verified = int((result.queries[:, PHASES.index("verify")] > 0).sum()) - result.status.count(Status.UNVERIFIED)
    unit = (
        f" {result.setting.unit}" if result.setting.unit and not all(map(math.isfinite, result.setting.bounds)) else ""
    )
    return [
        f"{int(s['succeeded'])} of {int(s['attacked'])}",
        f"{number(s['median_search'])} + {number(s['median_queries'] - s['median_search'])}",
        number(s["median_l2_flip"]) + unit,
        number(s["median_l2"]) + unit,
        f"{number(s['median_patches'])} of {len(result.setting.grid)}",
        f"{verified}",
    ]


def detail_table(result: AttackResult, limit: int = 20) -> Table:
    """One row a sample, the first `limit`."""
    table = Table(title=None)
    for heading in ("id", "status", "label", "before → after", "queries", "L2", "patches"):
        table.add_column(heading, justify="left" if heading in ("id", "status") else "right", overflow="fold")
    for i in range(min(limit, len(result))):
        before, after = int(result.before[i].argmax()), int(result.after[i].argmax())
        table.add_row(
            result.ids[i],
            result.status[i].value.split(" because")[0],
            _label(result, i),
            f"{_name(result, before)} {result.before[i, before]:.2f} → {_name(result, after)} {result.after[i, after]:.2f}",
            str(int(result.effort[i])),
            number(float(result.final["l2"][i])),
            str(int(result.final["l0_patches"][i])),
        )
    return table


def _name(result: AttackResult, label: int) -> str:
    return result.setting.classes[label] if result.setting.classes else str(label)


def _label(result: AttackResult, i: int) -> str:
    label = result.labels[i]
    several = label.nonzero().flatten().tolist() if label.shape else [int(label)]
    return ", ".join(_name(result, one) for one in several)


def breakdown_tables(result: AttackResult, limit: int = 20) -> list[Table]:
    """By class, by class and distortion, and by label where there are several; none where there is one class only."""
    if not has_classes(result):
        return []
    several = [_label_table(result, limit)] if result.labels.shape[1:] else []
    mixed = [_distortion_table(result)] if result.succeeded.any() else []
    return [_class_table(result, limit), *mixed, *several]


def _titled(title: str, shown: int, limit: int, headings: list[str]) -> Table:
    table = Table(title=title + (f", the first {limit} of {shown}" if shown > limit else ""), title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", overflow="fold")
    return table


def _class_table(result: AttackResult, limit: int) -> Table:
    rows = by_class(result)
    unit = result.setting.unit if not all(map(math.isfinite, result.setting.bounds)) else ""
    headings = [
        "class",
        "samples",
        "flipped",
        "success",
        "queries",
        f"L2{f' {unit}' if unit else ''}",
        "SNR dB\nat flip",
    ]
    table = _titled("By class, easiest first (medians over flipped samples)", len(rows), limit, headings)
    for row in rows[:limit]:
        success = "–" if math.isnan(row.success) else f"{row.success:.0%}"
        flipped = f"{row.succeeded} of {row.attacked}"
        figures = [number(value) for value in (row.median_queries, row.median_l2, row.snr_flip)]
        table.add_row(row.name, str(row.samples), flipped, success, *figures)
    return table


def _distortion_table(result: AttackResult, limit: int = 8) -> Table:
    """Distortions down, classes across: names of distortions are long and classes can be many."""
    found = by_distortion(result)
    shown = [row.name for row in by_class(result) if row.name in found][:limit]
    title = "Share of a class's flips in which a distortion took part"
    table = _titled(title, len(found), limit, ["distortion", *shown])
    for one in found[shown[0]]:
        table.add_row(one, *(f"{found[name][one]:.0%}" for name in shown))
    return table


def _label_table(result: AttackResult, limit: int) -> Table:
    rows = by_label(result)
    headings = ["label", "switched off", "switched on", "queries"]
    table = _titled("By label (attacked samples; median queries where it switched)", len(rows), limit, headings)
    for row in rows[:limit]:
        off, on = f"{row.switched_off} of {row.true}", f"{row.switched_on} of {row.absent}"
        table.add_row(row.name, off, on, number(row.median_queries))
    return table


def figures_line(result: AttackResult) -> str:
    """How many ended how."""
    counts = {status: result.status.count(status) for status in Status}
    return ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)


def reach_line(result: AttackResult) -> str:
    """How far the flipped samples had to go, in the measures of the video papers; empty where values have no bounds."""
    won = result.succeeded
    if not won.any() or not all(map(math.isfinite, result.setting.bounds)):
        return ""

    def median(values: Tensor) -> str:
        return number(float(values[won].float().median()))

    said = [f"MAP {median(result.final['map255'])} of 255", f"Linf {median(result.final['linf'])}"]
    match result.setting.size:
        case (length, _, _):
            said.append(f"{median(frames(result.original, result.perturbed))} of {length} frames")
    return f"Medians over flipped samples: {', '.join(said)}"


def filters_table(rank: int | None = None) -> Table:
    """The built-in filters, one row a name."""
    table = Table()
    for heading in ("filter", "for", "severities", "what it imitates"):
        table.add_column(heading, overflow="fold")
    for name, family in sorted(FAMILIES.items()):
        members = family(3)
        ranks = members[0].ranks
        if rank is None or rank in ranks:
            kinds = " ".join(("signal", "image", "video")[r - 1] for r in sorted(ranks))
            severities = " ".join(f"{s:g}" for s in members[0].severities) + (f" {members[0].unit}".rstrip())
            more = f"\n({' '.join(one.name for one in members)})" if len(members) > 1 else ""
            table.add_row(name + more, kinds, severities, members[0].about)
    return table


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """What the doctor found and what to change."""
    table = Table()
    for heading in ("", "finding", "seen", "change"):
        table.add_column(heading, overflow="fold")
    colours = {"error": "red", "warning": "yellow", "note": "dim"}
    for one in findings:
        level = one.level.value
        table.add_row(f"[{colours[level]}]{level}[/]", one.name, one.what, one.change)
    return table
