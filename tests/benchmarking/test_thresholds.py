"""Sets on both sides of the flip: each file gives the true class the confidence of its level."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlab.benchmarking import Benchmark, make_benchmark, run_benchmark, verify_benchmark
from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.make import rows_at_most
from tests.benchmarking.cases import Case, brightness, counted
from tests.benchmarking.test_ranking import OPTIONS, dark
from tests.helpers import PALETTE, exact_victim

LADDER = "confidence:0.9,0.7,0.5,flip,0.3,0.1"


@pytest.fixture(scope="module")
def both_sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Benchmark, dict[str, int]]:
    victim, options = brightness(0.45), OPTIONS | {"palette": ["illuminate@0.02,0.1,0.3"], "lead": 0.0}
    benchmark = make_benchmark({"m": victim}, dark(), tmp_path_factory.mktemp("both") / "b", ladder=LADDER, **options)
    return benchmark, dict(victim.rows)


def test_every_level_has_its_confidence_and_its_side(both_sides: tuple[Benchmark, dict[str, int]]):
    benchmark, _ = both_sides
    assert benchmark.ladder.names == ("c-0.9", "c-0.7", "c-0.5", "flip", "c-0.3", "c-0.1")
    for level in benchmark.ladder.names:
        rows = benchmark.stored("m", level)
        assert len(rows) >= (5 if level == "c-0.5" else 7)  # of 8; with two classes the flip lies at 0.5 itself
        scores = brightness(0.45)(benchmark.read(rows))
        if level != "flip":
            confidence = scores[:, 0].exp()
            assert (confidence - float(level[2:])).abs().max() <= 0.05
            assert confidence.tolist() == pytest.approx([row["probability"] for row in rows], abs=1e-5)
        right = (scores.argmax(1) == 0).tolist()
        assert right == [level in ("c-0.9", "c-0.7", "c-0.5")] * len(rows)
    assert 0 < benchmark.threshold_error <= 0.05


def test_a_milder_level_never_keeps_more_distortion_than_a_severer_one(
    both_sides: tuple[Benchmark, dict[str, int]], tmp_path: Path
):
    poor = make_benchmark(  # a budget at which searches miss what another level's search finds
        {"m": exact_victim(2)}, Case(2).batch, tmp_path / "b", ladder=LADDER, palette=PALETTE, patch=2,
        policy="random", budget=25, steps=15, tolerance=0.1, seed=2,
    )  # fmt: skip
    compared = 0
    for benchmark in (both_sides[0], poor):
        for sample in {row["place"] for row in benchmark.rows}:
            rows = {row["level"]: row for row in benchmark.rows if row["place"] == sample and row["reached"]}
            far = [rows[level]["l2"] for level in benchmark.ladder.names if level in rows]
            assert far == sorted(far)
            compared += len(far) - 1
    assert compared > 40
    assert verify_benchmark(poor, {"m": exact_victim(2)}).holds


def test_every_query_is_counted_and_within_what_was_planned(both_sides: tuple[Benchmark, dict[str, int]]):
    benchmark, queries = both_sides
    assert counted(benchmark) == {phase: queries.get(phase, 0) for phase in ("search", "cleanup", "verify")}
    assert sum(queries.values()) <= rows_at_most(BenchmarkOptions(ladder=LADDER, budget=120), 8)


def test_files_are_verified_on_their_side_and_graded(both_sides: tuple[Benchmark, dict[str, int]]):
    benchmark, _ = both_sides
    assert verify_benchmark(benchmark, {"m": brightness(0.45)}).holds
    wrong = verify_benchmark(benchmark, {"m": brightness(0.2)}).mismatches  # errs before the flip already
    assert {each.file.split("/")[1].split(".npz")[0] for each in wrong} <= {"c-0.9", "c-0.7", "c-0.5"}
    assert len(wrong) == sum(len(benchmark.stored("m", name)) for name in ("c-0.9", "c-0.7", "c-0.5"))
    report = run_benchmark([benchmark], {"m": brightness(0.45), "later": brightness(0.6)}, corruptions=False)
    assert [s.model for s in report.standings] == ["later", "m"]


def test_a_threshold_that_is_never_met_is_recorded_and_counted(tmp_path: Path):
    options = OPTIONS | {"palette": ["illuminate@0.6"], "patch": 8}  # one patch, one strength: all or nothing
    benchmark = make_benchmark({"m": brightness(0.45)}, dark(), tmp_path / "b", ladder="confidence:0.7,flip", **options)
    rows = benchmark.of("m", "c-0.7")
    assert len(benchmark.stored("m")) == 8
    assert not any(row["reached"] for row in rows)
    assert all(row["reason"] and not row["file"] for row in rows)
    assert "8 of 8" in (benchmark.folder / "README.md").read_text()
    assert not (benchmark.folder / "m" / "c-0.7.npz").exists()
