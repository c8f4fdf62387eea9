"""Batches of a few fixed sizes, for runtimes that compile anew for every number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SIZES = (1, 8, 64, 256)


def sizes_below(most: int) -> tuple[int, ...]:
    """The fixed sizes up to `most`, and `most` itself if it is not above them."""
    return tuple(sorted({*(size for size in SIZES if size <= most), min(most, SIZES[-1])}))


def in_sizes(x: Tensor, sizes: Sequence[int], feed: Callable[[Tensor], Tensor]) -> Tensor:
    """x: (b, ...) -> answers (b, ...) from calls with one of the `sizes` of rows each; without sizes from one call.

    The last row is repeated to fill a batch, at most as often as there are other rows, unless no smaller size exists. Nothing
    depends on the answers to repeated rows: they are dropped, and are no queries.
    """
    if not sizes:
        return feed(x)
    answers, at = list[Tensor](), 0
    while at < len(x):
        left = len(x) - at
        below = max((size for size in sizes if size <= left), default=min(sizes))
        size = next((size for size in sorted(sizes) if left <= size <= 2 * left), below)
        part = x[at : at + size]
        whole = torch.cat([part, part[-1:].expand(size - len(part), *part.shape[1:])]) if len(part) < size else part
        answers.append(feed(whole)[: len(part)])
        at += len(part)
    return torch.cat(answers)
