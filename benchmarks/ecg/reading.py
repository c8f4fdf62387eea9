"""How long a record of PTB-XL takes to read once it is in the cache."""

from __future__ import annotations

import os
import tempfile
import time
from unittest.mock import patch

from benchmarks.data import real
from benchmarks.harness import Figures
from rlab.data import load
from rlab.progress import showing

REPEATS = 3  # the fastest counts: others may be busy on the machine


def read_ms() -> Figures:
    """Milliseconds per record, the first time (all processes together) and from the cache."""
    folder = real("ptbxl")
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"RLAB_CACHE": cache}), showing(False):
        seconds = []
        for _ in range(REPEATS + 1):
            began = time.perf_counter()
            batch = load(folder)
            seconds.append(time.perf_counter() - began)
    records = len(batch) + len(batch.left_out)
    return {"first_read_ms": 1e3 * seconds[0] / records, "read_ms": 1e3 * min(seconds[1:]) / records}
