"""The settings and figures of finished runs, for each kind in `rlab.folders.kinds` that can be tracked, and what differs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlab.auditing.stages import read_audit
from rlab.comparison.comparison import Comparison
from rlab.comparison.outcome import Figures
from rlab.core.trace import DISTANCE_NAMES
from rlab.corruptions.report import read_corruptions
from rlab.errors import OptionError
from rlab.folders.kinds import read_record
from rlab.hardening.comparison import COMPARISON
from rlab.hardening.pages import LOG as HARDENED
from rlab.present.page import Block, Charts, Page, Section, Text
from rlab.present.table import Cell, Cells, Share, Table
from rlab.results.charts import attack_charts, curve_of
from rlab.results.page import key_numbers
from rlab.results.result import WITHIN, AttackResult
from rlab.results.tables import status_cell
from rlab.stats import Estimate
from rlab.storage import files
from rlab.storage.config import read_config
from rlab.storage.names import CONFIG
from rlab.storage.outside import read_text
from rlab.training.page import LOG as TRAINED
from rlab.training.page import read_card, trained_files

MARK = "Bold: the intervals do not overlap, so the runs differ by more than chance."
Figure = float | Estimate | Share
Item = TypeVar("Item")


@dataclass(frozen=True)
class RunRecord:
    """Settings by dotted name, figures by name, and the result of an attack."""

    folder: Path
    command: str
    settings: Mapping[str, str]
    figures: Mapping[str, Figure]
    result: AttackResult | None = None
    passed: bool | None = None  # only for an audit
    series: Sequence[tuple[int, Mapping[str, float]]] = ()  # figures per number of queries, or per step of a training

    @property
    def values(self) -> dict[str, float]:
        """Finite figures without their intervals."""
        return _finite({name: plain_value(figure) for name, figure in self.figures.items()})


def plain_value(figure: Figure) -> float:
    value = figure.value if isinstance(figure, Share) else figure
    return value.value if isinstance(value, Estimate) else float(value)


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as text, by dotted name."""
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        elif value is not None:
            flat[f"{before}{name}"] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return flat


def attack(run: Path) -> RunRecord:
    result = AttackResult.load(run)
    config = run / CONFIG
    settings = read_config(config) if config.is_file() else json.loads(result.setting.to_json())
    return RunRecord(run, "attack", _flat(settings), _attack_figures(result), result, series=_anytime(result))


def _anytime(result: AttackResult) -> list[tuple[int, Mapping[str, float]]]:
    """The anytime curve at each number of queries where it changes."""
    curve = curve_of(result)
    if not curve.best.size:
        return []
    points = zip(curve.queries.tolist(), curve.share.tolist(), curve.quantile(0.5).tolist(), strict=True)
    return [(int(q), _finite({"flipped within": share, "distance within": near})) for q, share, near in points]


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _attack_figures(result: AttackResult) -> dict[str, Figure]:
    key: dict[str, Any] = {number.name: number.value for number in key_numbers(result)}
    s = result.summary()
    name, spent = DISTANCE_NAMES[result.setting.distance], result.setting.budget
    within = {f"{name} within {q} queries": s[f"median_within_{q}"] for q in WITHIN if q < spent}
    return {**(key | within | key), "samples": s["samples"], "attacked": s["attacked"], "total queries": s["queries"]}


def audit(run: Path) -> RunRecord:
    record, stages = read_audit(run)
    figures: dict[str, Figure] = {
        row["requirement"]: float(row["value"])
        for row in record["requirements"]
        if isinstance(row["value"], int | float)
    }
    figures |= {} if stages.attack is None else _attack_figures(stages.attack)
    passed = all(row["passed"] for row in record["requirements"])
    series = [] if stages.attack is None else _anytime(stages.attack)
    return RunRecord(run, "audit", _flat(record["config"]), figures, stages.attack, passed, series)


def compare(run: Path) -> RunRecord:
    comparison = Comparison.load(run)
    figures: dict[str, Figure] = {}
    for name, outcome in comparison.outcomes.items():
        own = Figures.of(outcome, comparison.seed)
        figures |= {f"{name}: success": Share(own.success), f"{name}: L2": own.l2, f"{name}: queries": own.queries}
        figures |= {f"{name}: within {q}": own.within[q] for q in WITHIN if q < comparison.budget}
    settings = {"budget": comparison.budget, "seed": comparison.seed, "attacks": list(comparison.outcomes)}
    return RunRecord(run, "compare", _flat(settings), figures)


def corrupt(run: Path) -> RunRecord:
    report, config = read_corruptions(run), run / CONFIG
    figures = {
        number.name: number.value for number in report.numbers() if isinstance(number.value, int | float | Share)
    }
    figures |= {kind: Share(tally.accuracy) for kind, tally in report.totals().items()}
    settings = read_config(config) if config.is_file() else {"kinds": list(report.kinds), "levels": report.levels}
    return RunRecord(run, "corrupt", _flat(settings), figures | {"queries": report.rows})


def harden(run: Path) -> RunRecord:
    log = files.read_json(run / HARDENED)
    figures = {name.replace("_", " "): float(value) for name, value in log["summary"].items()}
    return RunRecord(run, "harden", _flat(log["config"]), figures, series=[*enumerate(map(_numbers, log["history"]))])


def harden_compare(run: Path) -> RunRecord:
    stored = files.read_json(run / COMPARISON)
    rows = stored["figures"]
    figures: dict[str, Figure] = {
        f"{row['method']}: {row['figure']}": math.nan if row["value"] is None else float(row["value"]) for row in rows
    }
    methods = list(dict.fromkeys(row["method"] for row in rows))
    return RunRecord(run, "harden", _flat({"seeds": stored["seeds"], "methods": methods}), figures)


def train(run: Path) -> RunRecord:
    lines = [_numbers(json.loads(line)) for line in read_text(run / TRAINED).splitlines()]
    last = {name: value for line in lines for name, value in line.items()}
    settings: dict[str, str] = {}
    for path in trained_files(run):
        settings |= _flat(read_card(path)[1].get("config", {}))
    return RunRecord(run, "train", settings, last, series=[*enumerate(lines)])


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return _finite({name: float(value) for name, value in row.items() if isinstance(value, int | float)})


# Several runs of one command: settings, figures, and samples with different results.


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
    figures = _beside([record.figures for record in runs.values()])
    return {name: [None if each is None else plain_value(each) for each in values] for name, values in figures.items()}
