"""The section of a benchmark: what was made, how models fare on it, and what they make of each other's sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.picture import draw_report
from rlab.benchmarking.report import DEFAULT, REPORT, read_report
from rlab.benchmarking.run import BenchmarkReport
from rlab.benchmarking.tables import RULES, report_tables, sets_table
from rlab.present.inline import figure_address
from rlab.present.page import Block, Gallery, Picture, Section, Text


def benchmark_section(
    benchmark: Benchmark, report: BenchmarkReport | None, verified: Mapping[str, Any] | None = None
) -> Section:
    """`verified` is a `Verification` as plain values."""
    blocks: list[Block] = [sets_table(benchmark)]
    if verified is not None:
        wrong = "; ".join(map(str, verified["mismatches"][:5]))
        blocks.append(Text(f"{verified['files']} files checked: {wrong or 'every hash, distance and flip holds.'}"))
    if report is not None:
        about = "Accuracy against severity, and the transfer matrix"
        blocks += [Gallery([Picture(figure_address(draw_report(report), 90), about)])]
        blocks += [*report_tables(report), Text(RULES, quiet=True)]
    return Section("Benchmark", blocks)


def benchmark_report(folder: Path) -> tuple[Benchmark, BenchmarkReport | None]:
    """A benchmark folder, and what models did on it where they were run."""
    benchmark, stored = Benchmark.load(folder), folder / DEFAULT
    return benchmark, read_report(benchmark, stored) if (stored / REPORT).is_file() else None
