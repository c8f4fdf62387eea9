"""The benchmark stage of an audit: a ladder of distances, and a benchmark that was made before with another model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rlab.benchmarking import BenchmarkReport
from tests.auditing.cases import declared, few_pictures, watched, write
from tests.command import rlab_command


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


@pytest.fixture(scope="module")
def made_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark that was made against another model."""
    folder = tmp_path_factory.mktemp("bench") / "others"
    palette = ["-p", "gaussian_noise@0.3", "-p", "gaussian_blur@0.01"]  # such a blur flips nothing
    words = ["tests.auditing.cases:brighter", "demo:digits", "--limit", 6, "--budget", 40, *palette]
    made = rlab_command("benchmark", "make", *words, "--ladder", "times:1.5", "--steps", 5, "--patch", 2, "-o", folder)
    assert made.code == 0, made.err
    return folder


def test_requirements_are_checked_on_an_existing_benchmark(made_before: Path, tmp_path: Path) -> None:
    needs = [{"metric": "accuracy", "level": level, "at_least": "1%"} for level in ("original", "x1.5")]
    values = declared(benchmark={"folder": str(made_before)}, explain=False, requirements=needs)
    before = {path for path in made_before.rglob("*") if "results" not in path.parts}
    audit, watch = watched(values, tmp_path / "out")
    assert audit.rows.model == watch.rows
    report = audit.find(BenchmarkReport)
    assert report is not None
    assert report.standings[0].victim_of == ()
    (level,) = (row for row in report.levels if row["level"] == "x1.5")
    assert audit.verdicts[1].value == pytest.approx(level["accuracy"])
    assert "others/" in audit.verdicts[1].note
    assert "this very model" not in audit.verdicts[1].note
    assert {path for path in made_before.rglob("*") if "results" not in path.parts} == before
    shutil.rmtree(made_before / "results")
    again, other = watched(values, tmp_path / "out")  # judged again from what is stored
    assert other.rows == 0
    assert [verdict.value for verdict in again.verdicts] == [verdict.value for verdict in audit.verdicts]
    made_before.rename(made_before.with_name("moved"))
    with few_pictures():
        assert rlab_command("report", tmp_path / "out").code == 0  # its page needs nothing from elsewhere
    made_before.with_name("moved").rename(made_before)


@pytest.mark.parametrize(
    ("stage", "need", "why"),
    [
        ({"ladder": "times:2"}, {"level": "flip"}, "benchmark.ladder"),
        ({"folder": "nowhere"}, {"level": "flip"}, "nowhere"),
        ({}, {"level": "x9"}, "x9"),
        ({}, {"distortion": "rain"}, "unknown distortion 'rain': there are gaussian_noise, gaussian_blur"),
        ({}, {"distortion": "gaussian_blur"}, "no file of the benchmark has 'gaussian_blur' as its main distortion"),
    ],
)
def test_an_unusable_benchmark_is_refused(
    made_before: Path, tmp_path: Path, stage: dict[str, Any], need: dict[str, str], why: str
) -> None:
    needs = [{"metric": "accuracy", **need, "at_least": "1%"}]
    values = declared(benchmark={"folder": str(made_before), **stage}, requirements=needs)
    said = rlab_command("audit", write(values, tmp_path / "a.yaml"), "--out", tmp_path / "out")
    assert said.code == 2
    assert why in said.err
    assert not (tmp_path / "out").exists()
