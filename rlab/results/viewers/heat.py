"""A map over its input: mixed into an image or frames, or as a band over a signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import matplotlib
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.inline import SMOOTH_FROM
from rlab.present.viewer import Mark, Ramp, Stage, Timeline, runs
from rlab.results.viewers.pixels import bars, outline, spread, strip_address, to_bytes
from rlab.results.viewers.signal import Traces, draw_traces

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
Outline = tuple[tuple[str, str], Mask]  # colour and name, and where
BAND, SIGNED = "YlOrRd", "bwr"  # over signals: of maps, and of effects
FULL = 0.5  # a change of the probability that gets the full colour
OVER = "autumn_r"  # over pictures: yellow to red, which black and white inputs both show
STRONGEST = 0.85  # opacity of the highest value over a picture; a value of 0 leaves the input as it is
MASK, TRUTH = ("#00c2ad", "mask: what the method selects"), ("#3b82f6", "ground truth")
ENDS, SIGNED_ENDS = ("unimportant", "important"), (f"{FULL:g} against the class", f"{FULL:g} for it")
LEVELS = 5  # colours of a band
BAR = 8.0  # height of a mask below a signal


@dataclass(frozen=True)
class Shown:
    """An input (c, *size) and what is known about it."""

    x: Array
    bounds: tuple[float, float]
    truth: Mask | None = None  # (*size)
    rate: float | None = None
    unit: str = ""
    leads: Sequence[str] = ()
    r_peaks: Sequence[int] = ()


@dataclass(frozen=True)
class Heat:
    """A map (*size) in [0, 1], lower where a method is less sure, and its mask (*size)."""

    heat: Array
    mask: Mask
    frames: Array | None = None  # (t,): the share of the map in each frame of a clip
    by_lead: Array | None = None  # (c, time) in [0, 1]: the map of each lead of a signal, in place of `heat`
    signed: bool = False  # `by_lead` in [-1, 1] is a change of the probability, where FULL is 1

    def over_leads(self, count: int) -> Array:
        """(c, *size): the map of each lead, which is the same for all leads if the method does not tell them apart."""
        return self.heat[None].repeat(count, 0) if self.by_lead is None else self.by_lead


def heat_stage(shown: Shown, over: Heat | None, among: int, still: bool = False) -> Stage:
    """An input, under a map if there is one; `among` is the number of stages on the page; clips show one frame if `still`."""
    masks = ((MASK, None if over is None else over.mask), (TRUTH, shown.truth))
    outlines = [(how, mask) for how, mask in masks if mask is not None]
    return _band(shown, over, outlines, among) if shown.x.ndim == 2 else _picture(shown, over, outlines, among, still)


def _band(shown: Shown, over: Heat | None, outlines: Sequence[Outline], among: int) -> Stage:
    stage, places = draw_traces(Traces(shown.x, shown.x, shown.rate, shown.unit, shown.leads, shown.r_peaks), among)
    points, marks, signed = shown.x.shape[1], [], over is not None and over.signed
    steps = range(1 - LEVELS if signed else 0, LEVELS)
    colours = {
        k: to_hex(band_colour(k / LEVELS + 0.5 * np.sign(k) / LEVELS, signed)) if k else "#ffffff" for k in steps
    }
    if over is not None:
        own = [(places, over.heat)]
        if over.by_lead is not None:
            own = [(replace(places, corners=[at]), heat) for at, heat in zip(places.corners, over.by_lead, strict=True)]
        levels = [(where, (heat * LEVELS).astype(int).clip(1 - LEVELS, LEVELS - 1)) for where, heat in own]
        for k in filter(None, steps):
            path = "".join(at.stretch(a / points, b / points) for at, level in levels for a, b in runs(level == k))
            least = abs(k) / LEVELS
            lowers = f"removing it {'lowers' if k > 0 else 'raises'} the probability by {least * FULL:.1f} or more"
            name = lowers if signed else f"above {least:.0%} of the highest"
            marks += [Mark(colours[k], name, path, band=True)] if path else []
    for number, ((colour, name), mask) in enumerate(outlines):
        path = "".join(places.stretch(a / points, b / points, BAR, number * (BAR + 1)) for a, b in runs(mask))
        marks += [Mark(colour, name, path)] if path else []
    legend = None if over is None else Ramp(list(colours.values()), *(SIGNED_ENDS if signed else ENDS))
    return Stage(stage.width, stage.height, marks, 1, sheet=stage.sheet, heat=True, ramp=legend)


def band_colour(value: float, signed: bool) -> tuple[float, float, float, float]:
    """The colour of a value in [0, 1] of a map, or in [-1, 1] of effects: red for the class, blue against it."""
    return matplotlib.colormaps[SIGNED if signed else BAND](0.5 + value / 2 if signed else value)


def _picture(shown: Shown, over: Heat | None, outlines: Sequence[Outline], among: int, still: bool) -> Stage:
    height, width = shown.x.shape[-2:]
    x = to_colours(scaled(shown.x, value_range(shown.bounds, shown.x))).reshape(-1, height, width, 3)
    shares = None if over is None else over.frames
    best = 0 if shares is None else int(shares.argmax())
    frames = [best] if shares is None or still else spread(len(x), best)
    hot = None if over is None else mixed(x, over.heat.reshape(-1, height, width))
    timeline = None
    if hot is not None and shares is not None and not still:
        timeline = Timeline(frames, len(x), bars(shares[None], ["var(--c1)"]), frames.index(best))
    marks = [
        Mark(colour, name, outline(mask[t]), t, t)
        for (colour, name), mask in ((how, mask.reshape(-1, height, width)) for how, mask in outlines)
        for t in frames
        if mask[t].any()
    ]
    return Stage(
        width, height, marks, 1,
        strip_address(to_bytes(x[frames]), among),
        "" if hot is None else strip_address(to_bytes(hot[frames]), among),
        smooth=min(height, width) >= SMOOTH_FROM,
        timeline=timeline,
        heat=True,
        ramp=None if hot is None else ramp(),
    )  # fmt: skip


def mixed(x: Array, heat: Array) -> Array:
    """Colours (*, h, w, 3) of inputs under a map (*, h, w) in [0, 1]: the higher the value, the more its colour covers."""
    strength = _strength(heat)[..., None]
    mix: Array = ((1 - strength) * x + strength * matplotlib.colormaps[OVER](heat)[..., :3]).astype(np.float32)
    return mix


def ramp() -> Ramp:
    """The legend of `mixed`."""
    steps = np.linspace(0, 1, LEVELS + 1, dtype=np.float32)
    opaque = [
        (*matplotlib.colormaps[OVER](step)[:3], float(much)) for step, much in zip(steps, _strength(steps), strict=True)
    ]
    return Ramp([to_hex(colour, keep_alpha=True) for colour in opaque], *ENDS)


def _strength(heat: Array) -> Array:
    """Opacity by value; squared, so that a map that is low everywhere does not tint its input."""
    return STRONGEST * heat**2
