"""A folder that an earlier version made (stored/before, with a report and kept answers) is read as one of today."""

from __future__ import annotations

import shutil
from pathlib import Path

from rlab.benchmarking import Benchmark, read_report, run_benchmark, verify_benchmark
from rlab.benchmarking.run import DEFAULT
from rlab.benchmarking.tables import benchmark_section
from tests.benchmarking.cases import brightness

BEFORE = Path(__file__).parent / "stored" / "before"


def test_a_folder_made_before_is_verified_and_graded_as_it_was(tmp_path: Path):
    benchmark = Benchmark.load(shutil.copytree(BEFORE, tmp_path / "before"))
    assert verify_benchmark(benchmark, {"exact": brightness()}).holds
    models = {"same": brightness(), "other": brightness(0.45)}
    before, now = read_report(benchmark.folder / "results" / "report"), run_benchmark([benchmark], models)
    assert now.transfer == before.transfer  # with `own`: the victim is known by its fingerprint of then
    assert now.levels == before.levels
    assert len(now.standings) == 2
    assert before.standings == ()  # ranks of then were by each set's own range
    assert now.corruptions == before.corruptions


def test_the_page_of_a_stored_report_holds_every_table():
    benchmark = Benchmark.load(BEFORE)
    report = read_report(BEFORE / DEFAULT)
    section = benchmark_section(benchmark, report, {"files": 9, "mismatches": []})
    kinds = [block.kind for block in section.blocks]
    assert kinds.count("table") == 1 + 4  # the sets; levels, transfer, distortions, corruptions
    assert "gallery" in kinds
