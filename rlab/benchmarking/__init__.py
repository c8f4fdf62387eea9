"""Benchmarks from attacks: made against models, verified from their files, and run on any others."""

from rlab.benchmarking.config import BenchmarkOptions, folder_name
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.ladder import Ladder, parse_ladder
from rlab.benchmarking.make import NothingFlipped, make_benchmark
from rlab.benchmarking.report import read_report, save_report
from rlab.benchmarking.run import BenchmarkReport, run_benchmark
from rlab.benchmarking.requirements import Requirement, Verdict, check_requirements, parse_requirement
from rlab.benchmarking.verify import Verification, verify_benchmark

__all__ = [
    "Benchmark",
    "BenchmarkOptions",
    "BenchmarkReport",
    "Ladder",
    "NothingFlipped",
    "Requirement",
    "Verdict",
    "Verification",
    "check_requirements",
    "folder_name",
    "make_benchmark",
    "parse_ladder",
    "parse_requirement",
    "read_report",
    "run_benchmark",
    "save_report",
    "verify_benchmark",
]
