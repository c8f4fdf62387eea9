"""File formats of samples. A format rounds each value on its own, so rounding the bank once makes every rendering exact:

    stored(render(bank, assignment)) == render(stored(bank), assignment)

The attack therefore queries the victim with exactly the values that a reader of the file will see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from rlab.benchmarking.packed import Npz, Parquet, WebDataset
from rlab.benchmarking.single import Bounds, Clip, Format, Frames, Png, Shape, Wfdb
from rlab.data.batch import Kind, Samples
from rlab.errors import OptionError
from rlab.filters.palette import Palette, bounded

_BY_NAME: dict[str, Callable[[Shape], Format]] = {
    kind.name: kind for kind in (Png, Npz, Wfdb, Clip, Frames, WebDataset, Parquet)
}


def make_format(name: str, shape: Shape) -> Format:
    if name not in _BY_NAME:
        raise OptionError(f"unknown format {name!r}: expected one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name](shape)


def usual_format(batch: Samples, from_files: bool) -> str:
    """The usual format for such data: PNG for images; files or arrays for signals and clips, as in the source."""
    by_kind: dict[Kind, str] = {"image": "png", "signal": "wfdb", "video": "mp4"}
    fits = batch.kind != "image" or (batch.shape[0] in (1, 3) and bounded(batch.bounds))
    return by_kind[batch.kind] if fits and (from_files or batch.kind == "image") else "npz"


@dataclass(frozen=True)
class StoredPalette(Palette):
    """A palette whose bank is rounded as the files round it."""

    stored: Callable[[Tensor], Tensor]

    def bank(self, x: Tensor, bounds: Bounds, seeds: Sequence[int]) -> Tensor:
        return self.stored(super().bank(x, bounds, seeds))
