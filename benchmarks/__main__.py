"""`python -m benchmarks CLAIM ...` is the same as `python -m benchmarks.CLAIM ...`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

CLAIMS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/__main__.py"))

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in CLAIMS:
        raise SystemExit(f"name a benchmark: python -m benchmarks {{{','.join(CLAIMS)}}} [--quick] [--page] ...")
    runpy.run_module(f"benchmarks.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
