"""A grid of patches over data of any rank: size (time,) for signals, (h, w) for images, (t, h, w) for video."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError


@dataclass(frozen=True)
class PatchGrid:
    """Splits `size` into boxes of `patch`; the last box along an axis may be smaller."""

    size: tuple[int, ...]
    patch: tuple[int, ...]

    @classmethod
    def of(cls, size: Sequence[int], patch: int | Sequence[int]) -> PatchGrid:
        """Build a grid; a single number is the patch's length along every axis."""
        sides = (patch,) * len(size) if isinstance(patch, int) else tuple(patch)
        return cls(tuple(int(s) for s in size), tuple(int(s) for s in sides))

    def __post_init__(self) -> None:
        if len(self.patch) != len(self.size):
            raise OptionError(
                f"expected a patch with {len(self.size)} sides for inputs of size {self.size}, got {self.patch}"
            )
        if any(side < 1 for side in self.patch):
            raise OptionError(f"expected patch sides of at least 1, got {self.patch}")
        if any(side > length for side, length in zip(self.patch, self.size, strict=True)):
            raise OptionError(
                f"the patch {self.patch} is larger than the input {self.size}: choose sides no longer than the input's"
            )

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def kind(self) -> Kind:
        return kind_of(self.size)

    @property
    def picture(self) -> tuple[int, ...]:
        """The axes that make up a picture: height and width, none for a signal."""
        return () if self.kind == "signal" else (self.rank - 2, self.rank - 1)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of patches along each axis."""
        return tuple(-(-length // side) for length, side in zip(self.size, self.patch, strict=True))

    def __len__(self) -> int:
        return math.prod(self.shape)

    def box(self, index: int) -> tuple[slice, ...]:
        """Where patch `index` lies, one slice per axis."""
        if not 0 <= index < len(self):
            raise IndexError(f"patch {index} of {len(self)}")
        place = []
        for count in reversed(self.shape):
            index, at = divmod(index, count)
            place.append(at)
        return tuple(
            slice(at * side, min((at + 1) * side, length))
            for at, side, length in zip(reversed(place), self.patch, self.size, strict=True)
        )

    def expand(self, values: Tensor) -> Tensor:
        """(..., p) -> (..., *size): every point gets its patch's value."""
        lead = values.shape[:-1]
        pairs = [(count, side) for count, side in zip(self.shape, self.patch, strict=True)]
        spread = values.reshape(*lead, *(n for count, _ in pairs for n in (count, 1)))
        spread = spread.expand(*lead, *(n for pair in pairs for n in pair))
        full = spread.reshape(*lead, *(count * side for count, side in pairs))
        whole: Any = (..., *(slice(0, length) for length in self.size))
        return full[whole]

    def total(self, values: Tensor) -> Tensor:
        """(..., *size) -> (..., p): the sum over each patch."""
        lead = values.shape[: values.dim() - self.rank]
        lengths = [count * side for count, side in zip(self.shape, self.patch, strict=True)]
        short = [whole - length for whole, length in zip(lengths, self.size, strict=True)]
        if any(short):
            values = pad(values, [n for gap in reversed(short) for n in (0, gap)])
        split = values.reshape(*lead, *(n for pair in zip(self.shape, self.patch, strict=True) for n in pair))
        inner = tuple(len(lead) + 1 + 2 * axis for axis in range(self.rank))
        return split.sum(inner).reshape(*lead, len(self))

    def reduce(self, values: Tensor) -> Tensor:
        """(..., *size) -> (..., p): the mean over each patch."""
        ones = torch.ones(self.size, dtype=values.dtype, device=values.device)
        return self.total(values) / self.total(ones)
