"""How long a record of PTB-XL takes to read."""

from __future__ import annotations

import time

from benchmarks.data import real
from benchmarks.harness import Figures
from rlab.data.load import load
from rlab.progress import showing

REPEATS = 3  # the fastest counts


def read_ms() -> Figures:
    """Milliseconds per record; `read_ms` is processor time, without other programs."""
    folder = real("ptbxl")
    with showing(False):
        walls, works = list[float](), list[float]()
        for _ in range(REPEATS):
            began, worked = time.perf_counter(), time.process_time()
            batch = load(folder)
            walls.append(time.perf_counter() - began)
            works.append(time.process_time() - worked)
    each = 1e3 / (len(batch) + len(batch.left_out))
    return {"read_ms": each * min(works), "read_wall_ms": each * min(walls)}
