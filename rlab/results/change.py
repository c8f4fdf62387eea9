"""How much of a change lies in each patch, and so which filters made a flip: shares of the squared change.

How many patches a filter distorts says little, because most flips use most filters of the palette.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rlab.core.setting import Setting
from rlab.results.data import ResultData, SampleData

COUNTS = 0.95  # of the squared change: the strongest filters that make it up are named, the others are not
VALUES = 2**26  # read at most, 220 photos: of longer runs, flips spread evenly


def patch_change(setting: Setting, x0: Tensor, x: Tensor) -> Tensor:
    """x0, x (n, c, *size) -> (n, p): the squared change of each patch."""
    return setting.grid.collect((x - x0).double().square())


def weigh(sample: SampleData) -> Tensor:
    """(p,): the squared change of each patch; if it is unknown or zero everywhere, distorted patches weigh the same."""
    if sample.inputs.has(0):
        change = patch_change(sample.setting, *sample.inputs.all())[0].cpu()
        if change.any():
            return change
    return (sample.entries != 0).double()


def entry_shares(entries: Tensor, change: Tensor, palette: int) -> Tensor:
    """Entries and squared change (n, p) -> (n, palette): the share that each palette entry made; zeros without a change."""
    by_entry = change.new_zeros(len(change), palette + 1).scatter_add_(1, entries.long(), change)[:, 1:]
    return by_entry / by_entry.sum(1, keepdim=True).clamp(min=torch.finfo(change.dtype).tiny)


def flip_shares(result: ResultData) -> tuple[Tensor, Tensor]:
    """Flips (m,) whose inputs are at hand, and the share of the squared change (m, palette) that each entry made."""
    setting = result.setting
    rows = [i for i in result.succeeded.nonzero().flatten().tolist() if result.inputs.has(i)]
    few = rows[:: 1 + len(rows) * 2 * math.prod(result.inputs.shape[1:]) // VALUES]
    change = torch.zeros(len(few), len(setting.grid), dtype=torch.float64)
    for at in range(0, len(few), 16):
        change[at : at + 16] = patch_change(setting, *result.inputs.read(few[at : at + 16]))
    rows_read = torch.tensor(few, dtype=torch.int64)
    return rows_read, entry_shares(result.assignment[rows_read], change, len(setting.palette))


def that_count(shares: Sequence[float]) -> list[int]:
    """The positions of the largest shares that together make up nearly all, the largest first."""
    order, found, total = sorted(range(len(shares)), key=lambda k: -shares[k]), list[int](), 0.0
    for k in order:
        if total < COUNTS * sum(shares) and shares[k] > 0:
            found.append(k)
            total += shares[k]
    return found
