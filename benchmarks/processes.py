"""Measurements in a process of their own, and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.raw import HERE


def measured_alone(module: str, *words: str, threads: int | None = None) -> dict[str, Any]:
    """The JSON object in the last line that `python -m module words` prints."""
    env = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    call = [sys.executable, "-m", module, *words]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=HERE.parent, env=env)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(words)} failed: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start_peak() -> float:
    """Reset the peak and return the MiB in use."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """Peak MiB of this process since `start_peak` (Linux only; ru_maxrss would include the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
