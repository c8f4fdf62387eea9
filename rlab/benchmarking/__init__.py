"""Benchmarks from attacks: made against models, verified from their files, and run on any others."""

from rlab.benchmarking.config import BenchmarkConfig, make_benchmark_config
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.ladder import Ladder, parse_ladder
from rlab.benchmarking.make import make_benchmark
from rlab.benchmarking.run import Report, run_benchmark
from rlab.benchmarking.table import save_report
from rlab.benchmarking.requirements import Requirement, Verdict, check_requirements, parse_requirement
from rlab.benchmarking.verify import Verification, verify_benchmark

__all__ = [
    "Benchmark",
    "BenchmarkConfig",
    "Ladder",
    "Report",
    "Requirement",
    "Verdict",
    "Verification",
    "check_requirements",
    "make_benchmark",
    "make_benchmark_config",
    "parse_ladder",
    "parse_requirement",
    "run_benchmark",
    "save_report",
    "verify_benchmark",
]
