"""The three kinds of data, by their rank: signals, images, video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Kind = Literal["signal", "image", "video"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def kind_of(size: Sequence[int]) -> Kind:
    """The kind of data with this size, without channels."""
    return KINDS[len(size) - 1]
