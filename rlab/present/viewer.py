"""A sample to play with on a page: original and perturbed under a slider, where and by what, and what the model said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SIDE, _CARD = 288, 350  # CSS pixels that small pictures are brought near, and of a card


@dataclass(frozen=True)
class Mark:
    """The patches of one palette entry, in one stretch of time: a path in the stage's units."""

    colour: str
    name: str
    path: str
    first: int = 0  # frames
    last: int = 0
    dashed: bool = False  # tells apart entries that share a colour


@dataclass(frozen=True)
class Answer:
    name: str
    true: bool
    before: float
    after: float


@dataclass(frozen=True)
class Lead:
    """Where it stands on the stage, and its lines in units of `scale`."""

    name: str
    left: float
    top: float
    scale: tuple[float, float]
    before: str
    after: str
    change: str  # magnified, about the middle


@dataclass(frozen=True)
class Sheet:
    """What signals are drawn on."""

    leads: Sequence[Lead]
    cell: tuple[float, float]  # width and height of a lead
    box: tuple[float, float]  # of the grid
    note: str
    paper: bool
    waves: Sequence[tuple[str, float, float]] = ()  # name, left, width
    times: Sequence[tuple[str, float]] = ()  # text, left


@dataclass(frozen=True)
class Timeline:
    """A clip's frames: the film of both versions, one above the other, and how many patches each frame holds."""

    film: str
    frames: int
    rate: float
    bars: Sequence[tuple[str, str]]  # colour and path, in units of frames and hundredths of the height
    poster: int  # the frame that is shown first


@dataclass(frozen=True)
class Stage:
    """Where both versions are shown, in units of its own: a picture's pixels, a sheet's points."""

    width: float
    height: float
    marks: Sequence[Mark]
    factor: int  # by which the difference is magnified
    before: str = ""  # a picture
    layer: str = ""  # what differs, over it
    smooth: bool = False
    sheet: Sheet | None = None
    timeline: Timeline | None = None
    heat: bool = False  # the layer is a map over the input, in place of a perturbed version

    @property
    def shown(self) -> int:
        """CSS pixels of the width: small pictures are enlarged by whole numbers, others to the width of a card."""
        if self.sheet:
            return round(self.width)
        if self.smooth:
            return max(round(self.width), _CARD)
        return int(self.width) * max(1, round(_SIDE / max(self.width, self.height)))

    @property
    def legend(self) -> list[tuple[str, str, bool]]:
        return list(dict.fromkeys((mark.colour, mark.name, mark.dashed) for mark in self.marks))


@dataclass(frozen=True)
class Viewer:
    id: str
    title: str
    status: str
    tone: str
    sentence: str
    answers: Sequence[Answer]
    stage: Stage


def line(values: NDArray[np.float32], keep: NDArray[np.bool_] | None = None) -> str:
    """A path through (n,) values, rounded, a step to the right each; broken where `keep` is false."""
    whole, path = values.round().astype(int), ""
    edges = np.diff(np.concatenate([[0], np.ones(len(whole)) if keep is None else keep, [0]])).nonzero()[0]
    for start, stop in edges.reshape(-1, 2).tolist():
        steps = " 1 ".join(map(str, np.diff(whole[start:stop]).tolist()))
        path += f"M{start} {whole[start]}" + (f"l1 {steps}" if steps else "")
    return path
