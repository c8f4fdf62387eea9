"""Maps over their inputs: colour over an image or the important frames of a clip, and a band behind each lead of a signal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from rlab.core.channels import is_twelve_lead
from rlab.data.batch import Batch
from rlab.explanation.clinical import BAND, FULL, SIGNED, Array, clinical_sheet, draw_heat
from rlab.explanation.explained import Explained
from rlab.explanation.maps import to_unit
from rlab.explanation.words import frame_shares
from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.inline import figure_image, to_image
from rlab.present.style import DPI, INK, STYLE, new_figure, tidy
from rlab.present.viewer import Ramp, Stage, Timeline, Viewer
from rlab.present.waves import waves
from rlab.results.plots.signal import draw_boxes
from rlab.results.viewers.pixels import bars, small_address, spread

Mask = NDArray[np.bool_]
SIDE, FRAMES = 224, 4  # pixels of an image's longer side; frames of a clip side by side
OVER = "autumn_r"  # over pictures: yellow to red, which black and white inputs both show
STRONGEST = 0.85  # opacity of the highest value over a picture
MASK, TRUTH = ("#00c2ad", "mask: what the method selects"), ("#3b82f6", "ground truth")
STRIP, LEAD = (4.2, 1.6), 0.45  # inches of a strip, and of each of many leads
WIDE_DPI = 300  # of a signal as wide as a page
NOTES = 3  # sentences below a sheet of twelve leads


@dataclass(frozen=True)
class Overlay:
    """An input (c, *size) under a map, its mask and the ground truth (*size)."""

    x: Array
    heat: Array  # (*size), or (c, time) for a signal; in [0, 1], or in [-1, 1] if `signed`
    mask: Mask
    truth: Mask | None
    batch: Batch  # what is known of the input
    row: int
    title: str  # the true, the predicted and the explained class, and the method
    signed: bool = False  # the map is a change of the probability, where FULL is 1
    paler: bool = False  # whether the method knows how sure it is
    notes: tuple[str, ...] = ()  # sentences below a sheet of twelve leads

    @classmethod
    def of(cls, explanation: Explained, batch: Batch, row: int) -> Overlay:
        heat, signal = to_unit(explanation.maps[row : row + 1])[0], batch.kind == "signal"
        if explanation.deviation is not None:  # how certain the sign of the map is
            ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
            heat = heat * torch.erf(ratio / 2**0.5)
        if signal:
            heat = heat.expand(batch.x.shape[1], -1)
        if signal and explanation.by_lead is not None:
            heat = explanation.by_lead[row].clamp(min=0) / explanation.by_lead[row].max().clamp(min=1e-12)
        if explanation.drops is not None:  # on one scale for all records
            heat = (explanation.drops[row] / FULL).clamp(-1, 1)
        return cls(
            batch.x[row].numpy(),
            heat.numpy(),
            explanation.mask[row].numpy(),
            None if batch.masks is None else batch.masks[row].numpy(),
            batch,
            row,
            f"{_classes(explanation, batch, row)}\nexplained {explanation.names[row]}, by {explanation.method}".strip(),
            explanation.drops is not None,
            explanation.deviation is not None,
            tuple(explanation.statements(row)[:NOTES]),
        )

    @property
    def clinical(self) -> bool:
        """Whether to draw twelve leads as clinicians read them."""
        batch = self.batch
        return batch.kind == "signal" and is_twelve_lead(batch.leads) and bool(batch.rate) and batch.unit == "mV"

    @property
    def outlines(self) -> list[tuple[Mask, str, str]]:
        """The mask and the ground truth with their colours and names."""
        both = (self.mask, *MASK), (self.truth, *TRUTH)
        return [(mask, colour, name) for mask, colour, name in both if mask is not None]

    @property
    def ramp(self) -> Ramp:
        """The legend of the map's colours."""
        if self.signed:
            return Ramp(_colours(SIGNED), f"{FULL:g} against the class", f"{FULL:g} for it")
        return Ramp(_colours(BAND if self.batch.kind == "signal" else OVER), "unimportant", "important")

    def picture(self, dpi: float | None = None) -> Image.Image:
        """The input under its map, without words: a signal, an image, or the important frames of a clip side by side."""
        return self._strip(dpi) if self.batch.kind == "signal" else to_image(np.concatenate(self._drawn(self.best), 1))

    def sheet(self) -> Image.Image:
        """A page to print of twelve leads."""
        batch = self.batch
        return clinical_sheet(self.x, self.heat, batch.leads, batch.rate or 1.0, self.title, self.notes, self.signed)

    def viewer(self, name: str, title: str, note: str, among: int, still: bool) -> Viewer:
        """The input, under a map that fades; `among` is the number of viewers, and a slider moves through clips unless `still`."""
        under, timeline = replace(self, heat=np.zeros_like(self.heat)), None
        if self.batch.kind == "video" and not still:
            shares = frame_shares(torch.from_numpy(self.heat)).numpy()
            frames = spread(len(shares), int(shares.argmax()))
            timeline = Timeline(
                frames, len(shares), bars(shares[None], ["var(--c1)"]), frames.index(int(shares.argmax()))
            )
            plain, over = (to_image(np.concatenate(each._drawn(frames))) for each in (under, self))
        else:
            plain, over = under.picture(WIDE_DPI), self.picture(WIDE_DPI)
        before, layer = (small_address(each, 2 * among) for each in (plain, over))
        height = over.height // (len(timeline.frames) if timeline else 1)
        ramp = replace(self.ramp, high=f"{self.ramp.high}; lines: {', '.join(name for _, _, name in self.outlines)}")
        stage = Stage(over.width, height, (), 1, before, layer, smooth=True, timeline=timeline, heat=True, ramp=ramp)
        return Viewer(name, title, "", "", note, (), stage)

    def _drawn(self, frames: Sequence[int]) -> list[Array]:
        """These frames of a clip (h, w, 3), or the image, under the map."""
        height, width = self.x.shape[-2:]
        times = max(1, round(SIDE / max(height, width)))
        colours = to_colours(scaled(self.x, value_range(self.batch.bounds, self.x))).reshape(-1, height, width, 3)
        heat = self.heat.reshape(-1, height, width)
        drawn = list[Array]()
        for frame in frames:
            large = mixed(colours[frame], heat[frame]).repeat(times, 0).repeat(times, 1)
            for mask, colour, _ in self.outlines:
                edge = border(mask.reshape(-1, height, width)[frame].repeat(times, 0).repeat(times, 1))
                large = np.where(edge[..., None], to_rgb(colour), large)
            drawn.append(large)
        return drawn

    @property
    def best(self) -> list[int]:
        """The frames with the largest shares of the map."""
        if self.heat.ndim == 2:
            return [0]
        shares = frame_shares(torch.from_numpy(self.heat)).numpy()
        return sorted(np.argsort(-shares, kind="stable")[:FRAMES].tolist())

    def _strip(self, dpi: float | None) -> Image.Image:
        """The leads above each other, in seconds and their unit, on ECG paper if that is mV.

        The map is a band behind them, the mask a bar below; the waves of a beat are named above.
        """
        x, batch = self.x, self.batch
        paper, step = bool(batch.rate) and batch.unit == "mV", 1 / (batch.rate or 1.0)
        at, end = (np.arange(x.shape[1]) + 0.5) * step, x.shape[1] * step
        peaks = () if batch.r_peaks is None else batch.r_peaks[self.row]
        with matplotlib.rc_context(STYLE):
            figure = new_figure(STRIP[0], max(STRIP[1], 0.6 + LEAD * len(x)))
            rows = figure.subplots(len(x), 1, sharex=True, squeeze=False)[:, 0]
            for ax, lead, heat in zip(rows, x, self.heat, strict=True):
                pad = 0.12 * (float(np.ptp(lead)) or 1.0)
                low, high = float(lead.min()) - pad, float(lead.max()) + pad
                if paper:
                    draw_boxes(ax, (0, end), (low, high))
                draw_heat(ax, heat, (0, end, low, high), signed=self.signed)
                for number, (mask, colour, _) in enumerate(self.outlines):
                    foot = low + 0.5 * number * pad
                    ax.fill_between(at, foot, foot + 0.4 * pad, where=mask.tolist(), color=colour, step="mid", zorder=3)
                ax.plot(at, lead, color=INK, linewidth=1.0, zorder=4)
                ax.set(xlim=(0, end), ylim=(low, high), ylabel=batch.unit)
                tidy(ax, keep=("left", "bottom"))
                ax.tick_params(labelsize=6)
            rows[-1].set_xlabel("seconds" if batch.rate else "points", fontsize=7)
            for name, cut in waves(peaks, batch.rate, x.shape[1]) if paper else ():
                place = ((cut.start + cut.stop) / 2 * step, 1.0)
                rows[0].annotate(name, place, xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=6)
            return figure_image(figure, dpi)


def _colours(name: str) -> list[str]:
    """The colours of a legend; over pictures the low ones are clear, as the map is."""
    steps = np.linspace(0, 1, 6)
    opaque = STRONGEST * steps**2 if name == OVER else np.ones_like(steps)
    each = zip(matplotlib.colormaps[name](steps), opaque, strict=True)
    return [to_hex((*colour[:3], much), keep_alpha=True) for colour, much in each]


def _classes(explanation: Explained, batch: Batch, row: int) -> str:
    """The true and the predicted class, with probabilities if they are known."""
    classes = {"true": int(batch.y[row])} if batch.y.dim() == 1 else {}
    p = None if explanation.probabilities is None else explanation.probabilities[row]
    if p is not None:
        classes["predicted"] = int(p.argmax())
    known = {label: "" if p is None else f" (P {float(p[label]):.2f})" for label in classes.values()}
    return ", ".join(f"{word} {batch.label_name(label)}{known[label]}" for word, label in classes.items())


def mixed(x: Array, heat: Array) -> Array:
    """Colours (h, w, 3) under a map (h, w) in [0, 1]; opacity is squared, so that a map that is low everywhere does not tint."""
    strength = STRONGEST * heat[..., None] ** 2
    mix: Array = ((1 - strength) * x + strength * matplotlib.colormaps[OVER](heat)[..., :3]).astype(np.float32)
    return mix


def border(mask: Mask) -> Mask:
    """(h, w): points of the mask with a neighbour outside it."""
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.logical_and(mask, ~inner)


def draw_maps(overlays: Sequence[Sequence[Overlay]]) -> Figure:
    """Rows of inputs under their maps, with their classes and a legend."""
    drawn = [[over.picture() for over in line] for line in overlays]
    widths = [max(line[at].width for line in drawn) for at in range(len(drawn[0]))]
    heights = [max(part.height for part in line) + 0.4 * DPI for line in drawn]
    first = overlays[0][0]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(max(sum(widths) / DPI + 0.9, 3.2), sum(heights) / DPI + 0.4)
        ratios: dict[str, Any] = {"width_ratios": widths, "height_ratios": heights}
        axes = figure.subplots(len(drawn), len(widths), squeeze=False, gridspec_kw=ratios)
        for ax, part, over in zip(axes.flat, chain(*drawn), chain(*overlays), strict=True):
            ax.imshow(part)
            ax.set_axis_off()
            frames = ", ".join(str(frame + 1) for frame in over.best) if over.batch.kind == "video" else ""
            words = [over.title, *([f"frames {frames}"] if frames else [])]
            ax.set_title("\n".join(_wrapped("\n".join(words), part.width)), fontsize=6, pad=2)
        signal = first.batch.kind == "signal"
        scale = matplotlib.cm.ScalarMappable(cmap=SIGNED if first.signed else BAND if signal else OVER)
        bar = figure.colorbar(scale, ax=list(axes.flat), fraction=0.04, pad=0.02, ticks=[0, 1])
        bar.ax.set_yticklabels([f"-{FULL:g}", f"+{FULL:g}"] if first.signed else ["least", "most"], fontsize=6)
        handles = [Patch(color=colour, label=name) for _, colour, name in first.outlines]
        handles += [Patch(color="none", label="paler: less sure")] if first.paler else []
        figure.legend(handles=handles, loc="outside lower left", fontsize=6, ncols=3)
        return figure


def _wrapped(text: str, pixels: int) -> list[str]:
    """Lines that fit above a picture."""
    return [part for line in text.split("\n") for part in textwrap.wrap(line, max(24, round(pixels / DPI * 24)))]


def overlays_of(explained: Mapping[str, Explained], batch: Batch, rows: Sequence[int]) -> list[list[Overlay]]:
    """Every method's map over each of these samples; images by one method share a row."""
    lines = [[Overlay.of(each, batch, row) for each in explained.values()] for row in rows]
    return [[line[0] for line in lines]] if len(explained) == 1 and batch.kind == "image" else lines
