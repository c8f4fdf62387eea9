"""No test depends on the last bits of a float: other kernels and other numbers of threads give the same verdicts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Whatever searches, trains or measures with floats.
PARTS = ["core", "policies", "papers", "priors", "runs", "comparison", "explanation"]
PARTS += ["benchmarking", "hardening", "training"]
MACHINES = {
    "plain kernels": {"ATEN_CPU_CAPABILITY": "default"},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "no oneDNN": {"RLAB_TEST_MKLDNN": "0"},
}


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_the_tests_pass_with_other_last_bits(machine: str, root: Path) -> None:
    folders = [f"tests/{part}" for part in PARTS]
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *folders],
        cwd=root, env=os.environ | MACHINES[machine], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert int(passed[1]) > 0
