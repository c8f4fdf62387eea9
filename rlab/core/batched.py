"""Records of many samples at once: every field holds one row per sample, and a step cuts and joins them all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Base of frozen dataclasses whose fields are tensors (n, ...), Rows, None, or a number that all rows share."""

    def __getitem__(self, rows: Tensor) -> Self:
        """The rows of a mask (n,) bool or of indices (m,), as copies."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return type(self)(**{k: v[rows] if isinstance(v, Tensor | Rows) else v for k, v in values.items()})

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """All rows of several records, in order."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(cls)}
        return cls(**{name: _joined(values) for name, values in columns.items()})

    def put(self, rows: Tensor, other: Self) -> Self:
        """A copy with some rows replaced by those of `other`."""
        parts = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return type(self)(**{name: _replaced(mine, rows, its) for name, (mine, its) in parts.items()})


@dataclass(frozen=True)
class NoMemory(Rows):
    """The memory of a policy that remembers nothing."""


def _joined(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Rows):
        return type(first).cat(values)
    if isinstance(first, Tensor):
        return torch.cat(list(values))
    assert all(value == first for value in values)
    return first


def _replaced(mine: Any, rows: Tensor, other: Any) -> Any:
    if isinstance(mine, Rows):
        return mine.put(rows, other)
    if isinstance(mine, Tensor):
        out = mine.clone()
        out[rows] = other
        return out
    return mine
