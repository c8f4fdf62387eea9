"""How many samples the next chunk of a run takes, so that something is saved every few seconds.

A pure function of the chunks before, whose seconds are in the ledger: a run that goes on after a stop takes what an unbroken one
would have taken. Fewer samples at once are a loss only where a model answers many rows as quickly as few, which the first
chunks tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlab.core.result import Status

SIZES = (4, 8, 16, 32, 64)
SECONDS = 4.0  # that a chunk should take
_PAYS = 0.75  # a larger chunk is worth its wait where it cuts a sample's seconds to this share


class Pace:
    """Sizes of chunks of at most `most` samples; all of them so large where the run is not `paced`."""

    def __init__(self, most: int, paced: bool) -> None:
        self.most, self.paced = most, paced
        self.sizes = [size for size in SIZES if size < most] + [most]
        self.seconds: dict[int, float] = {}  # an attacked sample's, by the size of its chunk

    def note(self, size: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """A chunk has ended, with these rows."""
        attacked = [row["seconds"] for row in rows if row["status"] != Status.SKIPPED]
        if attacked:
            self.seconds[size] = sum(attacked) / len(attacked)

    def size(self) -> int:
        """The largest that takes its few seconds, or one that pays; one not tried yet where that may be better."""
        if not self.paced or not self.seconds:
            return self.most if not self.paced else self.sizes[0]
        tried = sorted(self.seconds)
        best, paid = tried[0], len(tried) == 1
        for size in tried[1:]:
            paid = self.seconds[size] < _PAYS * self.seconds[best]
            if paid or size * self.seconds[size] <= 2 * SECONDS:
                best = size
        if best < tried[-1]:
            return best
        fits = [size for size in self.sizes if size * self.seconds[best] <= SECONDS]
        larger = [size for size in self.sizes if size > best]
        return max([best, *fits, *(larger[:1] if paid else [])])
