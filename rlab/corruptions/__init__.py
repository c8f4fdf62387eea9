"""The common corruptions: `corrupt(x, "fog", 3)` for a batch, and the accuracy of a model under all of them (`rlab.corrupt`)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Generator, Tensor

from rlab.errors import OptionError
from rlab.filters.base import FAMILIES
from rlab.filters.corruptions import LEVELS, PREFIX
from rlab.filters.palettes import CLIPS, COMMON, corruptions
from rlab.storage.config import did_you_mean

__all__ = ["CLIPS", "KINDS", "LEVELS", "SIGNALS", "corrupt"]

KINDS = COMMON  # for images and the frames of clips
SIGNALS = corruptions(rank=1)  # by kind, the filters of levels 1 to 5


def corrupt(x: Tensor, kind: str, level: int, seed: int | Sequence[int] = 0) -> Tensor:
    """x: (n, c, h, w) or (n, c, t, h, w) in [0, 1] -> the same shape, corrupted at a level from 1 to 5.

    With one seed, the draws of a row depend on its place in the batch; with a seed for each row they do not.
    """
    if kind not in (known := (*KINDS, *CLIPS)):
        raise OptionError(f"expected a corruption such as 'fog', got {kind!r}.{did_you_mean(kind, known)}")
    filter = FAMILIES[PREFIX + kind](x.shape[1])[0]
    if x.dim() - 2 not in filter.ranks or not x.is_floating_point() or (x.numel() and not 0 <= x.min() <= x.max() <= 1):
        wanted = "clips (n, c, t, h, w)" if kind in CLIPS else "images (n, c, h, w) or clips (n, c, t, h, w)"
        came = f"shape {tuple(x.shape)} and type {x.dtype}"
        raise OptionError(f"expected {wanted} in [0, 1], got {came}: scale or reshape them first")
    seeds = [seed] if isinstance(seed, int) else seed
    own = tuple(Generator(x.device).manual_seed(one * 1009 + 31 * known.index(kind) + level) for one in seeds)
    return filter(x, level, own[0] if isinstance(seed, int) else own).clamp(0, 1)
