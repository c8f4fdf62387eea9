"""The palette, tried on the samples; the model is not asked."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from rlab.data.batch import Batch
from rlab.diagnosis.report import Finding, error, warning
from rlab.errors import InputError
from rlab.filters import Entry, Palette, check_palette


def filter_findings(palette: Palette, batch: Batch, seed: int) -> list[Finding]:
    """`batch` holds the few samples picked."""
    found = []
    for part in _by_filter(palette):
        name = part.entries[0].filter.name
        try:
            check_palette(part, batch.x, batch.bounds)
            found += [_idle(entry, batch) for entry in part.entries if not _changes(entry, batch, seed)]
        except InputError as problem:
            change = f"mend that function, or take {name!r} out of the palette"
            found.append(error(f"filter:{name}", str(problem), change))
    return found


def _by_filter(palette: Palette) -> Iterable[Palette]:
    parts: dict[int, list[Entry]] = {}
    for entry in palette.entries:
        parts.setdefault(id(entry.filter), []).append(entry)
    return (Palette(tuple(entries)) for entries in parts.values())


def _changes(entry: Entry, batch: Batch, seed: int) -> bool:
    """Whether any sample looks different afterwards; stops at the first that does."""
    alone = Palette((entry,))
    banks = (alone.bank(batch.x[row : row + 1], batch.bounds, [seed]) for row in range(len(batch)))
    return any(not torch.equal(bank[:, 0], bank[:, 1]) for bank in banks)


def _idle(entry: Entry, batch: Batch) -> Finding:
    what = f"the palette entry {entry.name!r} changes no value of {len(batch)} samples"
    change = f"raise its severity or take it out: {entry.filter.name!r} only costs queries here"
    return warning(f"filter:{entry.filter.name}", what, change)
