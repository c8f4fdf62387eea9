"""A sample on a page: its layers as pictures and marks that fade and move, and the model's answers before and after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling

from rlab.present.inline import image_address
from rlab.present.layers import SMOOTH_FROM, Array, Layers, Mark, Ramp
from rlab.present.sheet import Sheet, lay_out

PIXELS = 30e6  # maximum of all pictures on a page, which keeps it below 20 MB
LOSSLESS = 3e6  # pixels on a page; above, pictures are compressed with losses
LONGEST = 16_000  # pixels of a side, as WebP allows
STILLS = 32  # frames of a strip, besides the one that changed most


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
class Timeline:
    """A clip, whose pictures hold several frames one below the other, and a bar for each frame."""

    frames: Sequence[int]  # in the pictures
    length: int  # of the clip, in frames
    bars: Sequence[tuple[str, str]]  # colour and path, in units of frames and hundredths of the height
    poster: int  # the position in `frames` to show first


@dataclass(frozen=True)
class Stage:
    """The area that shows both versions, or a map over the input; its units are pixels of a picture or of a sheet."""

    width: float
    height: float
    marks: Sequence[Mark]
    factor: int  # magnification of the difference
    before: str  # data: URL of a picture, or the SVG of a sheet
    layer: str = ""  # the pixels or lines that differ, or the map
    change: str = ""  # the magnified difference of a signal
    smooth: bool = False
    signal: bool = False
    timeline: Timeline | None = None
    ramp: Ramp | None = None  # of the map
    note: str = ""

    @property
    def legend(self) -> list[tuple[str, str, bool]]:
        return list(dict.fromkeys((mark.colour, mark.name, bool(mark.hatch)) for mark in self.marks))


@dataclass(frozen=True)
class Viewer:
    id: str
    title: str
    status: str
    tone: str
    sentence: str
    answers: Sequence[Answer]
    stage: Stage


def make_stage(layers: Layers, among: int = 1, still: bool = False) -> Stage:
    """`among` is the number of viewers on the page; clips show one frame if `still`."""
    return sheet_stage(lay_out(layers)) if layers.signal else _picture_stage(layers, among, still)


def sheet_stage(sheet: Sheet) -> Stage:
    heat = sheet.layers.ramp is not None
    return Stage(
        *sheet.size,
        sheet.marks,
        sheet.factor,
        sheet.svg("the signal", "paper", "before"),
        sheet.svg("the map" if heat else "what was perturbed", "heat" if heat else "after"),
        Markup() if heat else sheet.svg("the difference", "change"),
        smooth=True,
        signal=True,
        ramp=sheet.layers.ramp,
        note=sheet.note,
    )


def _picture_stage(layers: Layers, among: int, still: bool) -> Stage:
    height, width = layers.x.shape[-2:]
    first, second = layers.frames
    best = int(layers.weight.argmax()) if layers.clip else 0
    shown = [best] if still or not layers.clip else spread(len(first), best)
    if layers.heat is not None:
        layer = to_bytes(layers.overlay[shown])
    else:
        differs = (first[shown] != second[shown]).any(-1, keepdims=True)
        layer = np.concatenate([np.where(differs, to_bytes(second[shown]), 0), 255 * differs], -1).astype(np.uint8)
    timeline = None
    if layers.clip and not still:
        timeline = Timeline(shown, len(first), bars(layers.by_frame), shown.index(best))
    return Stage(
        width,
        height,
        [mark for mark in layers.marks if timeline or mark.at(best)],
        layers.factor,
        strip_address(to_bytes(first[shown]), among),
        strip_address(layer, among),
        smooth=min(height, width) >= SMOOTH_FROM,
        timeline=timeline,
        ramp=layers.ramp,
    )


def spread(length: int, best: int) -> list[int]:
    """Frames of a clip for a strip: the best one, and others at even distances."""
    return sorted({best, *np.linspace(0, length - 1, min(length, STILLS)).round().astype(int).tolist()})


def strip_address(frames: NDArray[np.uint8], among: int) -> str:
    """Frames (n, h, w, colours) one below the other as a data: URL, reduced if there are `among` of them on the page."""
    image = Image.fromarray(frames.reshape(-1, *frames.shape[2:]))
    pixels = among * image.width * image.height
    scale = min(math.sqrt(PIXELS / pixels), LONGEST / max(image.size))
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Resampling.LANCZOS)
    return image_address(image, lossy=pixels > LOSSLESS)


def to_bytes(values: Array) -> NDArray[np.uint8]:
    return (values * 255).round().astype(np.uint8)


def bars(layers: dict[str, NDArray[np.float64]]) -> list[tuple[str, str]]:
    """A bar per frame with the layers (t,) stacked: the colour and the path of each."""
    top, feet = max(sum(layers.values(), np.zeros(1)).max(), 1e-12), np.full(1, 100.0)
    found = []
    for colour, each in layers.items():
        high = 100 * each / top
        feet = feet - high
        found.append((colour, "".join(f"M{t + 0.05:g} {feet[t]:.4g}h.9v{high[t]:.4g}h-.9z" for t in each.nonzero()[0])))
    return found
