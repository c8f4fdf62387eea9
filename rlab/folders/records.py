"""The settings and figures of a finished run, for each kind in `rlab.folders.kinds` that can be compared and tracked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlab.auditing.results import read_audit
from rlab.comparison.comparison import Comparison
from rlab.comparison.outcome import Figures
from rlab.hardening.comparison import COMPARISON
from rlab.hardening.run import LOG as HARDENED
from rlab.present.table import Share
from rlab.results.charts import curve_of
from rlab.results.page import key_numbers
from rlab.results.result import WITHIN, AttackResult
from rlab.stats import Estimate
from rlab.storage import files
from rlab.storage.config import read_config
from rlab.storage.names import CONFIG
from rlab.storage.outside import read_text
from rlab.training.page import LOG as TRAINED
from rlab.training.page import read_card, trained_files

Figure = float | Estimate | Share


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
    within = {f"median within {q} queries": s[f"median_within_{q}"] for q in WITHIN if q < result.setting.budget}
    return {**key, **within, "samples": s["samples"], "attacked": s["attacked"], "total queries": s["queries"]}


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
