"""Which samples of a source are used: all of them, or a limited number, spread over the classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import OptionError

Labels = Tensor | NDArray[Any] | Sequence[Any]  # one per sample
Order = Literal["spread", "first"]  # what a limit selects: samples of all classes, or the first samples


@dataclass(frozen=True)
class Take:
    """At most `limit` samples. A limit is spread over the classes unless `order` is 'first'; `shuffle` draws at random."""

    limit: int | None = None
    shuffle: bool = False
    seed: int = 0
    order: Order = "spread"

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise OptionError(f"expected a limit of at least 1 sample, got {self.limit}")
        if self.shuffle and self.order == "first":
            raise OptionError("expected shuffle or order='first', got both: remove one")

    def rows(self, labels: Labels) -> list[int]:
        """Positions of the samples to use, given the labels (n,) or (n, k) of all; in the order of the data unless shuffled."""
        count = len(labels)
        if self.shuffle:
            return self.any_rows(count)
        if self.limit is None or self.limit >= count or self.order == "first":
            return list(range(count))[: self.limit]
        kinds, kind = np.unique(np.asarray(labels), axis=0, return_inverse=True)
        draw = np.random.default_rng(self.seed)
        order = draw.permutation(count)
        by_kind = order[np.argsort(kind.reshape(-1)[order], kind="stable")]  # the classes one after the other
        own = kind.reshape(-1)[by_kind]
        turn = np.arange(count) - np.searchsorted(own, np.arange(len(kinds)))[own]  # the position within its class
        chosen = by_kind[np.lexsort((draw.permutation(len(kinds))[own], turn))[: self.limit]]
        return sorted(int(row) for row in chosen)

    def any_rows(self, count: int) -> list[int]:
        """Positions without regard to labels: the first, or random ones."""
        rows = np.random.default_rng(self.seed).permutation(count) if self.shuffle else np.arange(count)
        return [int(row) for row in rows[: self.limit]]


ALL = Take()  # every sample, in the order of the data


def parse_ranges(text: str, expected: str) -> frozenset[int]:
    """Read '4-7' or '4,6,8-25'; `expected` ends the sentence of an error."""
    parts = [re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip()) for part in text.split(",")]
    pairs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if len(pairs) < len(parts) or any(first > last for first, last in pairs):
        raise OptionError(f"expected {expected}, got {text!r}")
    return frozenset(number for first, last in pairs for number in range(first, last + 1))
