"""Settings and metrics of finished runs, and what differs between several runs of one command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlab.errors import OptionError
from rlab.folders.finished import load_report
from rlab.present.page import Block, Page, Section, Text
from rlab.present.report import Metric, Report, plain_value
from rlab.present.table import Cell, Cells, Table
from rlab.stats import Estimate
from rlab.storage.config import read_config
from rlab.storage.names import CONFIG
from rlab.storage.run_file import reading

MARK = "Bold: the intervals do not overlap, so the runs differ by more than chance."
Item = TypeVar("Item")


@dataclass(frozen=True)
class RunRecord:
    """A finished run: its report, and its settings by dotted name."""

    folder: Path
    report: Report
    settings: Mapping[str, str]

    @property
    def figures(self) -> Mapping[str, Metric]:
        return self.report.metrics()

    @property
    def values(self) -> dict[str, float]:
        """Finite figures without their intervals."""
        plain = {name: plain_value(figure) for name, figure in self.figures.items()}
        return {name: value for name, value in plain.items() if math.isfinite(value)}


def flat_settings(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as text, by dotted name."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flat_settings(value, f"{before}{name}.")
        elif value is not None:
            flat[f"{before}{name}"] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return flat


def read_record(folder: str | Path) -> RunRecord:
    run = Path(folder)
    report = load_report(run)
    with reading(run):
        settings = read_config(run / CONFIG) if (run / CONFIG).is_file() else report.settings()
        return RunRecord(run, report, flat_settings(settings))


def read_runs(folders: Sequence[Path]) -> dict[str, RunRecord]:
    """Two or more runs of one command, by folder name, or by path if names repeat."""
    records = [read_record(folder) for folder in folders]
    commands = {record.report.verb for record in records}
    if len(commands) > 1:
        raise OptionError(f"expected runs of one command, got runs of {' and '.join(sorted(commands))}")
    names = [folder.resolve().name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise OptionError(f"expected different runs, got {names[0]} more than once")
    return dict(zip(names, records, strict=True))


def changes_page(runs: Mapping[str, RunRecord]) -> Page:
    blocks: list[Block] = [settings_table(runs), figures_table(runs), Text(MARK, quiet=True)]
    reports, (first, *_) = {name: record.report for name, record in runs.items()}, runs.values()
    sections = [Section("What changed", blocks), *first.report.compared(reports)]
    return Page(" and ".join(runs), sections, lead=f"{len(runs)} runs of rlab {first.report.verb} compared.")


def _beside(each: Sequence[Mapping[str, Item]]) -> dict[str, list[Item | None]]:
    """The values of every name that any of the runs has, None where a run lacks it."""
    names = dict.fromkeys(name for one in each for name in one)
    return {name: [one.get(name) for one in each] for name in names}


def settings_table(runs: Mapping[str, RunRecord]) -> Table:
    """Settings that differ, with a dash if a run lacks one."""
    settings = _beside([record.settings for record in runs.values()])
    rows: list[Cells] = [[name, *values] for name, values in settings.items() if len(set(values)) > 1]
    same = f"Settings that differ; {len(settings) - len(rows)} are the same" if rows else "All settings are the same"
    return Table(["setting", *runs], rows, same, words=1 + len(runs))


def figures_table(runs: Mapping[str, RunRecord]) -> Table:
    """All figures; a run's is marked if its interval and the first run's do not overlap."""
    rows: list[Cells] = []
    for name, (first, *others) in _beside([record.figures for record in runs.values()]).items():
        rows.append([name, first, *(Cell(other, "warn" if _apart(first, other) else "") for other in others)])
    return Table(["figure", *runs], rows, "Figures")


def _apart(a: Metric | None, b: Metric | None) -> bool:
    ends = [_interval(figure) for figure in (a, b) if figure is not None]
    if len(ends) < 2 or any(math.isnan(end) for interval in ends for end in interval):
        return False
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def _interval(figure: Metric) -> tuple[float, float]:
    value = figure if isinstance(figure, int | float | Estimate) else figure.value
    return (value.low, value.high) if isinstance(value, Estimate) else (math.nan, math.nan)


def figure_changes(runs: Mapping[str, RunRecord]) -> dict[str, list[float | None]]:
    """The values of every figure, one per run, for JSON."""
    figures = _beside([record.figures for record in runs.values()])
    return {name: [None if each is None else plain_value(each) for each in values] for name, values in figures.items()}
