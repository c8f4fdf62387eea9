"""Benchmarks made by attacking models, verified from their files, and run on any other model."""

from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.make import make_benchmark
from rlab.benchmarking.report import BenchmarkReport
from rlab.benchmarking.requirements import parse_requirement
from rlab.benchmarking.run import run_benchmark
from rlab.benchmarking.verdicts import check_requirements
from rlab.benchmarking.verify import verify_benchmark

__all__ = [
    "Benchmark", "BenchmarkOptions", "BenchmarkReport", "check_requirements", "make_benchmark", "parse_requirement",
    "run_benchmark", "verify_benchmark",
]  # fmt: skip
