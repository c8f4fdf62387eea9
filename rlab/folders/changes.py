"""Compare runs: settings, figures, and samples with different results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlab.errors import OptionError
from rlab.folders.kinds import read_record
from rlab.folders.records import Figure, RunRecord, plain_value
from rlab.present.page import Block, Charts, Page, Section, Text
from rlab.present.table import Cell, Cells, Table
from rlab.results.charts import attack_charts
from rlab.results.result import AttackResult
from rlab.results.tables import status_cell
from rlab.stats import Estimate

MARK = "Bold: the intervals do not overlap, so the runs differ by more than chance."


def read_runs(folders: Sequence[Path]) -> dict[str, RunRecord]:
    """Two or more runs of one command, by folder name, or by path if names repeat."""
    records = [read_record(folder) for folder in folders]
    commands = {record.command for record in records}
    if len(commands) > 1:
        raise OptionError(f"expected runs of one command, got runs of {' and '.join(sorted(commands))}")
    names = [folder.resolve().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise OptionError(f"expected different runs, got {names[0]} more than once")
    return dict(zip(names, records, strict=True))


def changes_page(runs: Mapping[str, RunRecord]) -> Page:
    blocks: list[Block] = [settings_table(runs), figures_table(runs), Text(MARK, quiet=True)]
    sections = [Section("What changed", blocks)]
    results = {name: record.result for name, record in runs.items() if record.result is not None}
    if len(results) == len(runs):
        charts = attack_charts(results)
        sections += [Section("Distance by queries", [Charts(charts)])] if charts else []
        sections.append(Section("Samples", _sample_blocks(results)))
    command = next(iter(runs.values())).command
    return Page(" and ".join(runs), sections, lead=f"{len(runs)} runs of rlab {command} compared.")


def settings_table(runs: Mapping[str, RunRecord]) -> Table:
    """Settings that differ, with a dash if a run lacks one."""
    names = dict.fromkeys(name for record in runs.values() for name in record.settings)
    rows: list[Cells] = []
    for name in names:
        values = [record.settings.get(name) for record in runs.values()]
        if len(set(values)) > 1:
            rows.append([name, *values])
    same = f"Settings that differ; {len(names) - len(rows)} are the same" if rows else "All settings are the same"
    return Table(["setting", *runs], rows, same, words=1 + len(runs))


def figures_table(runs: Mapping[str, RunRecord]) -> Table:
    """All figures; a run's is marked if its interval and the first run's do not overlap."""
    names = dict.fromkeys(name for record in runs.values() for name in record.figures)
    rows: list[Cells] = []
    for name in names:
        first, *others = (record.figures.get(name) for record in runs.values())
        rows.append([name, first, *(Cell(other, "warn" if _apart(first, other) else "") for other in others)])
    return Table(["figure", *runs], rows, "Figures")


def _apart(a: Figure | None, b: Figure | None) -> bool:
    ends = [_interval(figure) for figure in (a, b) if figure is not None]
    if len(ends) < 2 or any(math.isnan(end) for interval in ends for end in interval):
        return False
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def _interval(figure: Figure) -> tuple[float, float]:
    value = figure if isinstance(figure, int | float | Estimate) else figure.value
    return (value.low, value.high) if isinstance(value, Estimate) else (math.nan, math.nan)


def _sample_blocks(results: Mapping[str, AttackResult]) -> list[Block]:
    """Shared samples whose status or distance differs, the largest difference first."""
    places = {name: {sample: i for i, sample in enumerate(result.ids)} for name, result in results.items()}
    shared = [sample for sample in next(iter(places.values())) if all(sample in ids for ids in places.values())]
    if not shared:
        return [Text("The runs share no sample.")]
    rows: list[tuple[float, Cells]] = []
    for sample in shared:
        ends = [(result, places[name][sample]) for name, result in results.items()]
        l2 = [float(result.final["l2"][i]) for result, i in ends]
        endings = {result.status[i] for result, i in ends}
        spread = math.inf if len(endings) > 1 else max(l2) / min(l2) if min(l2) > 0 else 1.0
        if spread > 1:
            rows.append((spread, [sample, *(status_cell(result.status[i]) for result, i in ends), *l2]))
    rows.sort(key=lambda row: -row[0])
    head = ["id", *(f"{name}: status" for name in results), *(f"{name}: L2" for name in results)]
    how_many = f"{len(rows)} of {len(shared)} shared samples have a different status or distance."
    return [Text(how_many), Table(head, [cells for _, cells in rows], words=1 + len(results))]


def figure_changes(runs: Mapping[str, RunRecord]) -> dict[str, list[float | None]]:
    """The values of every figure, one per run, for JSON."""
    names = dict.fromkeys(name for record in runs.values() for name in record.figures)
    figures = {name: [record.figures.get(name) for record in runs.values()] for name in names}
    return {name: [None if each is None else plain_value(each) for each in values] for name, values in figures.items()}
