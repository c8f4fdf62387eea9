"""What is drawn of a sample: the input, and what lies over it. Pages, notebooks and figures draw the same layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Rectangle = tuple[float, float, float, float]  # left, top, width, height
Version = Literal["original", "perturbed", "difference", "marked", "map"]
FULL = 0.5  # a change of the probability that gets the full colour
OVER, SIGNED, STRONGEST = "autumn_r", "bwr", 0.85  # colours of maps and of effects, opacity of the highest value
FACTORS = tuple(step * 10**power for power in range(5) for step in (1, 2, 5))
SMOOTH_FROM = 160  # pixels per side; smaller pictures show their pixels as squares


@dataclass(frozen=True)
class Mark:
    """Rectangles of one look, in pixels; in a signal, in points of time and in leads."""

    colour: str
    name: str
    places: Sequence[Rectangle]
    frames: tuple[int, int] = (0, 0)  # the first and the last
    hatch: str = ""  # for entries that share a colour with another
    frame: bool = False  # an outline in full colour, such as the box of an object
    strength: float = 1.0  # of the shade
    versions: tuple[Version, ...] = ("marked", "map")  # that show the mark

    @property
    def path(self) -> str:
        """An SVG path."""
        return "".join(f"M{x:.5g} {y:.5g}h{wide:.4g}v{high:.4g}h{-wide:.4g}z" for x, y, wide, high in self.places)

    def at(self, frame: int) -> bool:
        return self.frames[0] <= frame <= self.frames[1]


@dataclass(frozen=True)
class Ramp:
    """The legend of a map: its colours, and the words for both ends."""

    colours: Sequence[str]
    low: str
    high: str


@dataclass(frozen=True)
class Layers:
    """An input (c, *size), a perturbed version of it or a map over it, and marks: a signal, an image or a clip."""

    x: Array
    bounds: tuple[float, float]
    after: Array | None = None  # (c, *size)
    heat: Array | None = None  # (*size), or (c, time) of a signal; in [0, 1], or in [-1, 1] if `signed`
    marks: Sequence[Mark] = ()
    signed: bool = False  # the map is a change of the probability, where FULL is 1
    rate: float | None = None
    unit: str = ""
    leads: Sequence[str] = ()
    r_peaks: Sequence[int] = ()

    @property
    def signal(self) -> bool:
        return self.x.ndim == 2

    @property
    def clip(self) -> bool:
        return self.x.ndim == 4

    @property
    def paper(self) -> bool:
        """Whether a signal lies on ECG paper."""
        return self.unit == "mV" and bool(self.rate)

    @property
    def change(self) -> Array:
        return (self.x if self.after is None else self.after) - self.x

    @property
    def note(self) -> str:
        """What the colours of the picture leave out."""
        return "" if self.signal or len(self.x) in (1, 3) else f" (mean of {len(self.x)} channels)"

    @property
    def ramp(self) -> Ramp | None:
        """The legend of the map."""
        if self.heat is None:
            return None
        colours = legend_colours(np.linspace(-self.signed, 1, 7), self.signed)
        low, high = (f"{FULL:g} against the class", f"{FULL:g} for it") if self.signed else ("unimportant", "important")
        return Ramp(colours, low, high)

    @cached_property
    def frames(self) -> tuple[Array, Array]:
        """Both versions (t, h, w, 3) of an image or clip as colours; three channels are RGB, others become their mean."""
        both = (self.x, self.x if self.after is None else self.after)
        ends = value_range(self.bounds, *both)
        first, second = (to_colours(scaled(values, ends)) for values in both)
        return first.reshape(-1, *first.shape[-3:]), second.reshape(-1, *second.shape[-3:])

    @property
    def overlay(self) -> Array:
        """(t, h, w, 4): the map of an image or clip as colours that let the input shine through."""
        assert self.heat is not None
        return map_colours(self.heat.reshape(-1, *self.heat.shape[-2:]), self.signed)

    def seen(self, version: Version, frame: int = 0) -> Array:
        """(h, w, 3): one frame in one version."""
        before, after = (frames[frame] for frames in self.frames)
        if version == "difference":
            return (0.5 + 0.5 * self.factor * (after - before)).clip(0, 1)
        if version == "marked":  # paler, so that marks stand out
            return (0.35 + 0.65 * (0.25 * after + 0.75 * after.mean(-1, keepdims=True))).astype(after.dtype)
        if version == "map":
            over = self.overlay[frame]
            mixed: Array = before + over[..., 3:] * (over[..., :3] - before)
            return mixed
        return before if version == "original" else after

    @property
    def factor(self) -> int:
        """The largest round magnification of the difference that keeps it within the range of colours."""
        return magnification(float(np.abs(self.frames[1] - self.frames[0]).max()))

    @cached_property
    def by_frame(self) -> dict[str, NDArray[np.float64]]:
        """By colour, the number of distorted patches in each frame of a clip, or the share of the map in it."""
        if self.heat is not None:
            shares = self.heat.clip(min=0).reshape(len(self.heat), -1).sum(1, dtype=np.float64)
            return {"var(--c1)": shares / max(shares.sum(), 1e-12)}
        counts: dict[str, NDArray[np.float64]] = {}
        for mark in self.marks:
            if not mark.frame:
                own = counts.setdefault(mark.colour, np.zeros(self.x.shape[1]))
                own[mark.frames[0] : mark.frames[1] + 1] += len(mark.places)
        return counts

    @property
    def weight(self) -> NDArray[np.float64]:
        """(t,): how much of the marks or of the map lies in each frame of a clip."""
        return sum(self.by_frame.values(), np.zeros(self.x.shape[1]))

    def lead(self, at: int) -> str:
        return self.leads[at] if at < len(self.leads) else f"{'lead' if self.unit == 'mV' else 'channel'} {at + 1}"

    def name(self, frame: int) -> str:
        """A frame of a clip by its time, or by its number without a rate."""
        return f"{frame / self.rate:.2f} s" if self.rate else f"frame {frame + 1}"


def magnification(peak: float) -> int:
    """The largest round factor that keeps a change of at most `peak` within 1."""
    return max((factor for factor in FACTORS if factor * peak <= 1), default=1) if peak else 1


def map_colours(heat: NDArray[np.floating], signed: bool) -> Array:
    """A map as colours (..., 4); opacity is squared, so that a map that is low everywhere does not tint."""
    colours = matplotlib.colormaps[SIGNED](0.5 + heat / 2) if signed else matplotlib.colormaps[OVER](heat)
    opacity = STRONGEST * (np.abs(heat) if signed else heat**2)
    return np.concatenate([colours[..., :3], opacity[..., None]], -1).astype(np.float32)


def legend_colours(heat: NDArray[np.floating], signed: bool = False) -> list[str]:
    return [to_hex(each, keep_alpha=True) for each in map_colours(heat, signed)]


def to_colours(values: Array) -> Array:
    """(c, *size) -> (*size, 3): three channels are RGB; any other number is shown as their mean in grey."""
    shown = values if len(values) == 3 else values.mean(0, keepdims=True).repeat(3, 0)
    return np.moveaxis(shown, 0, -1)


def value_range(bounds: tuple[float, float], *values: Array) -> tuple[float, float]:
    """The bounds, or the common range of the values if there are none."""
    if np.isfinite(bounds[1] - bounds[0]):
        return bounds
    return min(float(part.min()) for part in values), max(float(part.max()) for part in values)


def scaled(values: Array, ends: tuple[float, float]) -> Array:
    """Values scaled from `ends` to [0, 1]."""
    low, high = ends
    return ((values - low) / ((high - low) or 1.0)).clip(0, 1)


def runs(on: Mask) -> list[tuple[int, int]]:
    """(n,) -> start and stop of every run of true values."""
    edges = np.diff(np.concatenate([[0], on.astype(np.int8), [0]])).nonzero()[0].reshape(-1, 2)
    return [(int(start), int(stop)) for start, stop in edges]


def outline(mask: Mask) -> list[Rectangle]:
    """(h, w) -> the edges of the mask, as rectangles without a width or without a height."""
    wide = np.pad(mask, 1)
    across, down = wide[1:, 1:-1] != wide[:-1, 1:-1], wide[1:-1, 1:] != wide[1:-1, :-1]
    edges: list[Rectangle] = [(a, y, b - a, 0) for y, row in enumerate(across) for a, b in runs(row)]
    return edges + [(x, a, 0, b - a) for x, column in enumerate(down.T) for a, b in runs(column)]


def mask_marks(mask: Mask, leads: int, colour: str, name: str, bar: float = 0.0) -> list[Mark]:
    """A mask (*size) as outlines; of a signal, as bars below every lead, `bar` of its height above the lower edge."""
    if mask.ndim == 1:
        bars: list[Rectangle] = [
            (start, lead + 0.94 - bar, stop - start, 0.04) for lead in range(leads) for start, stop in runs(mask)
        ]
        return [Mark(colour, name, bars)]
    frames = mask.reshape(-1, *mask.shape[-2:])
    return [Mark(colour, name, outline(each), (t, t), frame=True) for t, each in enumerate(frames) if each.any()]
