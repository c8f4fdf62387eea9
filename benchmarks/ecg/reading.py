"""How long a record of PTB-XL takes to read once it is in the cache."""

from __future__ import annotations

import os
import tempfile
import time
from unittest.mock import patch

from benchmarks.data import real
from benchmarks.harness import Figures
from rlab.data.load import load
from rlab.progress import showing

REPEATS = 3  # the fastest counts


def read_ms() -> Figures:
    """Milliseconds per record: the first time, and from the cache; `read_ms` is processor time, without other programs."""
    folder = real("ptbxl")
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"RLAB_CACHE": cache}), showing(False):
        walls, works = list[float](), list[float]()
        for _ in range(REPEATS + 1):
            began, worked = time.perf_counter(), time.process_time()
            batch = load(folder)
            walls.append(time.perf_counter() - began)
            works.append(time.process_time() - worked)
    each = 1e3 / (len(batch) + len(batch.left_out))
    return {"first_read_ms": each * walls[0], "read_ms": each * min(works[1:]), "read_wall_ms": each * min(walls[1:])}
