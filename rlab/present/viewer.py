"""An interactive sample on a page: original and perturbed, the distorted patches, and the model's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ramp:
    """The legend of a map: its colours, and the words for both ends."""

    colours: Sequence[str]
    low: str
    high: str


@dataclass(frozen=True)
class Mark:
    """The patches of one palette entry and strength in a range of frames, as a path in the stage's units."""

    colour: str
    name: str
    path: str
    first: int = 0  # frames
    last: int = 0
    dashed: bool = False  # for entries that share a colour with another
    band: bool = False  # a part of a map, which the ramp explains
    frame: bool = False  # an outline, such as the box of an object
    strength: float = 1.0  # of the shade


@dataclass(frozen=True)
class Answer:
    """A figure before and after, as bars within `range`."""

    name: str
    true: bool
    before: float
    after: float
    range: tuple[float, ...] = (0.0, 1.0)

    def width(self, value: float) -> float:
        """The length of a bar in percent; from zero, unless that would hide the difference."""
        low, high = min(0.0, *self.range), max(0.0, *self.range)
        return 100 * (value - low) / (high - low) if high > low else 0.0

    @property
    def words(self) -> str:
        shown = [f"{value:.2f}" if self.range == (0.0, 1.0) else f"{value:.4g}" for value in (self.before, self.after)]
        return " → ".join(shown)


@dataclass(frozen=True)
class Lead:
    """A lead's position on the stage, and its lines in units of `scale`."""

    name: str
    left: float
    top: float
    scale: tuple[float, float]
    before: str
    after: str
    change: str  # magnified, around the middle


@dataclass(frozen=True)
class Sheet:
    """The leads of a signal and their grid."""

    leads: Sequence[Lead]
    cell: tuple[float, float]  # width and height of a lead
    box: tuple[float, float]  # of the grid
    note: str
    paper: bool
    waves: Sequence[tuple[str, float, float]] = ()  # name, left, width
    times: Sequence[tuple[str, float]] = ()  # text, left

    @property
    def columns(self) -> list[float]:
        """The left edges of the columns of leads, each of which spans the whole time."""
        return sorted({lead.left for lead in self.leads})


@dataclass(frozen=True)
class Timeline:
    """A clip, whose pictures hold several frames one below the other, and the distorted patches per frame."""

    frames: Sequence[int]  # in the pictures
    length: int  # of the clip, in frames
    bars: Sequence[tuple[str, str]]  # colour and path, in units of frames and hundredths of the height
    poster: int  # the position in `frames` to show first


@dataclass(frozen=True)
class Stage:
    """The area that shows both versions; its units are pixels of a picture or points of a sheet."""

    width: float
    height: float
    marks: Sequence[Mark]
    factor: int  # magnification of the difference
    before: str = ""  # a picture
    layer: str = ""  # the pixels that differ
    smooth: bool = False
    sheet: Sheet | None = None
    timeline: Timeline | None = None
    heat: bool = False  # the layer is a map over the input instead of a perturbed version
    ramp: Ramp | None = None

    @property
    def legend(self) -> list[tuple[str, str, bool]]:
        return list(dict.fromkeys((mark.colour, mark.name, mark.dashed) for mark in self.marks if not mark.band))


@dataclass(frozen=True)
class Viewer:
    id: str
    title: str
    status: str
    tone: str
    sentence: str
    answers: Sequence[Answer]
    stage: Stage


def runs(on: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(n,) -> start and stop of every run of true values."""
    edges = np.diff(np.concatenate([[0], on.astype(np.int8), [0]])).nonzero()[0].reshape(-1, 2)
    return [(int(start), int(stop)) for start, stop in edges]


def line(values: NDArray[np.float32], keep: NDArray[np.bool_] | None = None) -> str:
    """A path through rounded values (n,), one unit apart, interrupted where `keep` is false."""
    whole, path = values.round().astype(int), ""
    for start, stop in [(0, len(whole))] if keep is None else runs(keep):
        steps = " 1 ".join(map(str, np.diff(whole[start:stop]).tolist()))
        path += f"M{start} {whole[start]}" + (f"l1 {steps}" if steps else "")
    return path
