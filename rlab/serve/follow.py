"""The progress of a running attack, read from its finished parts; each part is read once."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlab.core.status import Status
from rlab.errors import InputError
from rlab.serve.runs import status_of
from rlab.storage.steps import read_step, step_paths

LEAST = 5  # distances shown


@dataclass(frozen=True)
class PartFacts:
    """What came of a chunk of samples."""

    ended: tuple[str, ...] = ()
    queries: int = 0
    distances: tuple[float, ...] = ()  # of the nearest flips


def progress_of(folder: Path) -> dict[str, Any]:
    """Samples by outcome, queries, and the distances of the flips so far."""
    paths = step_paths(folder, "chunk-").values()
    parts = [_read(path, status.st_mtime_ns) for path in paths if (status := status_of(path))]
    distances = sorted(distance for part in parts for distance in part.distances)
    ended = Counter(word for part in parts for word in part.ended)
    return {
        "samples": ended.total(),
        "ended": ended,
        "queries": sum(part.queries for part in parts),
        "median": statistics.median(distances) if distances else None,
        "best": distances[:LEAST],
    }


@lru_cache(maxsize=2**14)
def _read(path: Path, changed: int) -> PartFacts:
    with suppress(InputError, OSError, ValueError, TypeError, LookupError, AttributeError):  # damaged
        rows = read_step(path).value
        rows = rows if isinstance(rows, list) else rows.to_pylist()
        won = [min(row.get("improved_to") or [math.inf]) for row in rows if row["status"] == Status.SUCCEEDED]
        counts = [value for row in rows for name, value in row.items() if name.startswith("queries_")]
        ended = tuple(Status(row["status"]).label.split(" because")[0] for row in rows)
        return PartFacts(ended, sum(counts), tuple(filter(math.isfinite, won)))
    return PartFacts()
