"""How an agent decides: an option from logits by a draw, or the judgement of one taken before; and where, coarse to fine.

Level 1 cuts a frame into a few large cells, the last level is single patches. Cells are numbered level by level. A cell of
level k has children at level k + 1 that tile it exactly; a choice may also stop at a cell and mean the whole of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.errors import OptionError

Box = tuple[int, int, int, int]  # first row, row after the last, first column, column after the last
LEVELS = (1, 2, 3)
FORBIDDEN = -1e9  # the logit of an option that is not open; finite, so that no gradient turns NaN


def choose(logits: Tensor, draw: Tensor | None, taken: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """logits (n, m) with draw (n,) in [0, 1), or the option taken (n,) -> option (n,), its log-probability (n,), entropy (n,)."""
    log = logits.log_softmax(1)
    chance = log.exp()
    if taken is None:
        assert draw is not None
        taken = pick(chance, draw)
    return taken, log.gather(1, taken[:, None]).squeeze(1), -(chance * log.clamp(min=-50)).sum(1)


def pick(chance: Tensor, draw: Tensor) -> Tensor:
    """The option (n,) at which the summed chances (n, m) pass the draw (n,); never one without a chance."""
    total = chance.cumsum(1)
    return (total / total[:, -1:] <= draw[:, None]).sum(1).clamp(max=chance.shape[1] - 1)


def toss(logits: Tensor, draw: Tensor | None, taken: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Yes or no for each of m: logits, draws or answers taken (n, m) -> yes (n, m) bool, log-probability, entropy (n,)."""
    chance = logits.sigmoid()
    if taken is None:
        assert draw is not None
        taken = draw < chance
    log_prob = F.logsigmoid(torch.where(taken, logits, -logits))
    return taken, log_prob.sum(1), (F.softplus(logits) - chance * logits).sum(1)


@dataclass(frozen=True)
class Hierarchy:
    """Over `shape` patches of a frame; `coarse` cells along each side at level 1, `levels` of 1, 2 or 3."""

    shape: tuple[int, int]
    coarse: int = 4
    levels: int = 2

    def __post_init__(self) -> None:
        if self.levels not in LEVELS:
            raise OptionError(f"expected 1, 2 or 3 levels of patches, got {self.levels!r}")
        if not isinstance(self.coarse, int) or self.coarse < 1:
            raise OptionError(f"expected at least 1 coarse cell along a side, got {self.coarse!r}")

    @cached_property
    def _tree(self) -> tuple[list[list[Box]], list[list[list[int]]]]:
        """Boxes of each level, and for each level after the first the children of every cell above it."""
        cells = [_cut((0, self.shape[0], 0, self.shape[1]), self.coarse)]
        children: list[list[list[int]]] = []
        for level in range(2, self.levels + 1):
            finer: list[Box] = []
            below: list[list[int]] = []
            for box in cells[-1]:
                parts = _cut(box, max(self.shape) if level == self.levels else 2)
                below.append(list(range(len(finer), len(finer) + len(parts))))
                finer.extend(parts)
            cells.append(finer)
            children.append(below)
        return cells, children

    def boxes(self, level: int) -> list[Box]:
        """The cells of a level, from 1."""
        return self._tree[0][level - 1]

    @cached_property
    def members(self) -> tuple[Tensor, ...]:
        """For each level (cells, patches) bool: which patches a cell covers."""
        return tuple(torch.stack([_inside(box, self.shape) for box in boxes]) for boxes in self._tree[0])

    @cached_property
    def children(self) -> tuple[Tensor, ...]:
        """For each level after the first (cells above, most children): cells of the level, -1 where there are fewer."""
        padded = []
        for below in self._tree[1]:
            most = max(map(len, below))
            padded.append(torch.tensor([row + [-1] * (most - len(row)) for row in below]))
        return tuple(padded)


def _cut(box: Box, parts: int) -> list[Box]:
    """A box in `parts` runs along each side, as even as can be; never less than one patch a run."""
    top, bottom, left, right = box
    rows, columns = _runs(top, bottom, parts), _runs(left, right, parts)
    return [(a, b, c, d) for a, b in rows for c, d in columns]


def _runs(first: int, last: int, parts: int) -> list[tuple[int, int]]:
    count = min(parts, last - first)
    ends = [first + round(i * (last - first) / count) for i in range(count + 1)]
    return list(pairwise(ends))


def _inside(box: Box, shape: tuple[int, int]) -> Tensor:
    covered = torch.zeros(shape, dtype=torch.bool)
    covered[box[0] : box[1], box[2] : box[3]] = True
    return covered.flatten()
