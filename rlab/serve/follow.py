"""Follow a running attack: its progress is read from its finished parts and sent as server-sent events."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlab.core.status import Status
from rlab.errors import InputError
from rlab.storage.steps import read_step, step_paths

LEAST, EVERY, BEAT = 5, 0.5, 15.0  # distances shown; seconds between reads; seconds between keep-alive comments
_CHUNK = "chunk-"  # prefix of the keys of an attack's steps


@dataclass
class Follower:
    """The results of a run so far; each look reads only new chunks."""

    folder: Path
    seen: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    best: list[float] = field(default_factory=list)
    queries: int = 0

    def look(self) -> dict[str, Any]:
        with suppress(InputError, OSError, ValueError, TypeError, LookupError, AttributeError):
            self._read()  # missing or being written: the next look reads it
        return {
            "steps": len(self.seen),
            "samples": sum(self.counts.values()),
            "ended": self.counts,
            "queries": self.queries,
            "median": statistics.median(self.best) if self.best else None,
            "best": sorted(self.best)[:LEAST],
        }

    def _read(self) -> None:
        for key, path in step_paths(self.folder).items():
            if key not in self.seen:
                self.seen.add(key)
                if key.startswith(_CHUNK):
                    self._count(read_step(path).value)

    def _count(self, rows: Any) -> None:
        """Count the rows of a table or of a list of records."""
        for row in rows if isinstance(rows, list) else rows.to_pylist():
            status = Status(row["status"])
            word = status.label.split(" because")[0]
            self.counts[word] = self.counts.get(word, 0) + 1
            self.queries += sum(int(value) for name, value in row.items() if name.startswith("queries_"))
            nearest = min(row.get("improved_to") or [math.inf])
            if status is Status.SUCCEEDED and math.isfinite(nearest):
                self.best.append(float(nearest))


async def events(look: Callable[[], dict[str, Any]], running: Callable[[], bool]) -> AsyncIterator[str]:
    """Send each change as an event until the run ends; regular comments detect closed connections."""
    sent, quiet = "", 0.0
    while True:
        more = await asyncio.to_thread(running)  # checked first, so that the last look sees everything
        now = json.dumps(await asyncio.to_thread(look))
        if now != sent:
            sent, quiet = now, 0.0
            yield f"data: {now}\n\n"
        if not more:
            yield "event: end\ndata: {}\n\n"
            return
        quiet += EVERY
        if quiet >= BEAT:
            quiet = 0.0
            yield ": keep-alive\n\n"
        await asyncio.sleep(EVERY)
