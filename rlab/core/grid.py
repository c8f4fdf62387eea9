"""A grid of patches over data of any rank: size (time,) for signals, (h, w) for images, (t, h, w) for video.

A patch is a box of positions and a group of channels. Groups are the first axis of the grid, which has no such axis where all
channels go together. Values over positions, (..., *size) or (..., groups, *size), come from `expand` and go into `total`;
`spread` and `collect` do the same for the values of inputs, (..., c, *size).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlab.data.kinds import Kind, kind_of
from rlab.errors import OptionError

UNTOUCHED = -1  # in place of a group, for channels that no patch holds


@dataclass(frozen=True)
class PatchGrid:
    """Splits `size` into boxes of `patch`, the last along an axis may be smaller; and the channels into groups."""

    size: tuple[int, ...]
    patch: tuple[int, ...]
    channels: tuple[int, ...] = ()  # the group of each channel, UNTOUCHED for none; () if all channels go together

    @classmethod
    def of(cls, size: Sequence[int], patch: int | Sequence[int], channels: Sequence[int] = ()) -> PatchGrid:
        """Build a grid; a single number is the patch's length along every axis."""
        sides = (patch,) * len(size) if isinstance(patch, int) else tuple(patch)
        return cls(tuple(int(s) for s in size), tuple(int(s) for s in sides), tuple(channels))

    def __post_init__(self) -> None:
        if len(self.patch) != len(self.size):
            raise OptionError(f"expected a patch with {len(self.size)} sides for size {self.size}, got {self.patch}")
        if any(side < 1 for side in self.patch):
            raise OptionError(f"expected patch sides of at least 1, got {self.patch}")
        if any(side > length for side, length in zip(self.patch, self.size, strict=True)):
            raise OptionError(f"the patch {self.patch} is larger than the input {self.size}: choose shorter sides")
        if {*self.channels, UNTOUCHED} != {*range(UNTOUCHED, max(self.channels, default=UNTOUCHED) + 1)}:
            raise OptionError(f"expected groups of channels counted from 0 without a gap, got {self.channels}")

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def kind(self) -> Kind:
        return kind_of(self.size)

    @property
    def picture(self) -> tuple[int, ...]:
        """The axes of `shape` that make up a picture: height and width, none for a signal."""
        return () if self.kind == "signal" else (len(self.shape) - 2, len(self.shape) - 1)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The channels of each group; () if all channels go together."""
        return tuple(
            tuple(channel for channel, own in enumerate(self.channels) if own == group)
            for group in range(max(self.channels, default=UNTOUCHED) + 1)
        )

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The size, after the number of groups if there are any."""
        return (len(self.groups), *self.size) if self.channels else self.size

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """The length of a patch along each axis."""
        return (1, *self.patch) if self.channels else self.patch

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of patches along each axis."""
        return tuple(-(-length // side) for length, side in zip(self.lengths, self.sides, strict=True))

    @property
    def cells(self) -> tuple[int, ...]:
        """Number of boxes along each axis of the size."""
        return self.shape[-self.rank :]

    def __len__(self) -> int:
        return math.prod(self.shape)

    def group(self, index: int) -> int:
        """The group of patch `index`; 0 if all channels go together."""
        return index // math.prod(self.cells)

    def holds(self, index: int, channel: int) -> bool:
        """Whether patch `index` has values of this channel."""
        return not self.channels or self.channels[channel] == self.group(index)

    def box(self, index: int) -> tuple[slice, ...]:
        """Where patch `index` lies, one slice per axis of the size."""
        if not 0 <= index < len(self):
            raise IndexError(f"patch {index} of {len(self)}")
        place = []
        for count in reversed(self.cells):
            index, at = divmod(index, count)
            place.append(at)
        return tuple(
            slice(at * side, min((at + 1) * side, length))
            for at, side, length in zip(reversed(place), self.patch, self.size, strict=True)
        )

    def places(self, marked: Tensor) -> Tensor:
        """(..., p) bool -> (..., *cells): where a patch of any group is marked."""
        return marked.reshape(*marked.shape[:-1], -1, *self.cells).any(marked.dim() - 1)

    def expand(self, values: Tensor) -> Tensor:
        """(..., p) -> (..., *lengths): every point gets its patch's value."""
        lead = values.shape[:-1]
        pairs = [(count, side) for count, side in zip(self.shape, self.sides, strict=True)]
        spread = values.reshape(*lead, *(n for count, _ in pairs for n in (count, 1)))
        spread = spread.expand(*lead, *(n for pair in pairs for n in pair))
        full = spread.reshape(*lead, *(count * side for count, side in pairs))
        whole: Any = (..., *(slice(0, length) for length in self.lengths))
        return full[whole]

    def spread(self, values: Tensor) -> Tensor:
        """(..., p) -> (..., c, *size), with c = 1 if all channels go together; zero in channels without a group."""
        full, axis = self.expand(values), values.dim() - 1
        if not self.channels:
            return full.unsqueeze(axis)
        if UNTOUCHED in self.channels:
            full = torch.cat([full, torch.zeros_like(full.narrow(axis, 0, 1))], axis)
        return full.index_select(axis, _index(tuple(own % full.shape[axis] for own in self.channels), values.device))

    def cover(self, marked: Tensor) -> Tensor:
        """(..., p) bool -> (..., *size): where a patch of any group is marked."""
        full = self.expand(marked)
        return full.any(marked.dim() - 1) if self.channels else full

    def total(self, values: Tensor) -> Tensor:
        """(..., *lengths) -> (..., p): the sum over each patch."""
        lead, rank = values.shape[: values.dim() - len(self.shape)], len(self.shape)
        lengths = [count * side for count, side in zip(self.shape, self.sides, strict=True)]
        short = [whole - length for whole, length in zip(lengths, self.lengths, strict=True)]
        if any(short):
            values = pad(values, [n for gap in reversed(short) for n in (0, gap)])
        split = values.reshape(*lead, *(n for pair in zip(self.shape, self.sides, strict=True) for n in pair))
        inner = tuple(len(lead) + 1 + 2 * axis for axis in range(rank))
        return split.sum(inner).reshape(*lead, len(self))

    def merge(self, values: Tensor) -> Tensor:
        """(..., c, *size) -> (..., *lengths): the sum over the channels of each group."""
        axis = values.dim() - self.rank - 1
        if not self.channels:
            return values.sum(axis)
        parts = [values.index_select(axis, _index(group, values.device)).sum(axis) for group in self.groups]
        return torch.stack(parts, axis)

    def collect(self, values: Tensor) -> Tensor:
        """(..., c, *size) -> (..., p): the sum over each patch."""
        return self.total(self.merge(values))

    def reduce(self, values: Tensor) -> Tensor:
        """(..., *lengths) -> (..., p): the mean over each patch."""
        ones = torch.ones(self.lengths, dtype=values.dtype, device=values.device)
        return self.total(values) / self.total(ones)

    def points(self) -> Tensor:
        """(p,): the number of points of each patch, counted in every channel of its group."""
        boxes, counts = torch.ones(self.lengths), torch.tensor([float(len(group)) for group in self.groups])
        return self.total(boxes * counts.view(-1, *(1,) * self.rank) if self.channels else boxes)


@cache
def _index(channels: tuple[int, ...], device: torch.device) -> Tensor:
    """Made once, so that no query waits for its transfer to a GPU."""
    return torch.tensor(channels, device=device)
