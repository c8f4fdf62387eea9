"""The benchmark stage of an audit: a ladder of distances."""

from __future__ import annotations

from pathlib import Path

from rlab.benchmarking import BenchmarkReport
from tests.auditing.cases import declared, watched


def test_a_ladder_of_distances_has_tables_and_a_verdict(tmp_path: Path) -> None:
    values = declared(
        data={"path": "demo:digits", "limit": 3},
        doctor=False,
        explain=False,
        benchmark={"ladder": "l2:0.5,4", "steps": 5},
        requirements=[
            {"metric": "accuracy", "level": "l2-0.5", "at_least": 0.1},
            {"metric": "accuracy", "level": "l2-4", "at_most": "90%"},
        ],
    )
    audit, _ = watched(values, tmp_path / "out")
    assert audit.passed, list(map(str, audit.verdicts))
    report = audit.find(BenchmarkReport)
    assert report is not None
    assert any("at l2-4" in table.title for table in report.tables())
    assert len(report.charts()) == 1
