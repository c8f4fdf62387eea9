"""Maps as pictures: colour over an image, a strip over a signal, or colour over the important frames of a clip."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from PIL import Image
from torch import Tensor

from rlab.core.channels import is_twelve_lead
from rlab.data.batch import Batch
from rlab.data.kinds import kind_of
from rlab.explanation.clinical import clinical_sheet
from rlab.explanation.maps import to_unit
from rlab.explanation.words import frame_shares, statements
from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.style import DPI, STYLE, new_figure, tidy
from rlab.present.waves import waves
from rlab.results.plots.moving import LONGEST, SHORTEST, SLOW
from rlab.results.viewers.heat import BAND, HEAT, Array, Mask
from rlab.storage.files import replacing
from rlab.storage.names import file_name

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

SIDE, FRAMES = 224, 4  # pixels of an image's longer side; frames of a clip side by side
LINE, MASKED = np.array([0.0, 0.95, 0.85]), "#0072B2"
STRIP, LEAD = (4.2, 2.1), 0.45  # inches of a strip, and of each of many leads
NOTES = 3  # sentences below a sheet of twelve leads


@dataclass(frozen=True)
class Overlay:
    """A map and a mask to draw over an input, and facts to show beside them."""

    heat: Array  # (*size) in [0, 1], lower where the method is less sure
    mask: Mask  # (*size)
    classes: str  # the true and the predicted class
    explained: str
    unit: str = ""
    rate: float | None = None  # samples per second
    r_peaks: tuple[int, ...] = ()
    paler: bool = False  # whether the method knows how sure it is
    frames: Array | None = None  # (t,) share of the map in each frame of a clip
    leads: tuple[str, ...] = ()  # names of the channels
    by_lead: Array | None = None  # (c, *size) in [0, 1], if the method tells leads apart
    notes: tuple[str, ...] = ()  # sentences below a sheet of twelve leads

    @classmethod
    def of(cls, explanation: Explanation, batch: Batch, row: int) -> Overlay:
        heat = to_unit(explanation.maps[row : row + 1])[0]
        if explanation.deviation is not None:  # how certain the sign of the map is
            ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
            heat = heat * torch.erf(ratio / 2**0.5)
        return cls(
            heat.numpy(),
            explanation.mask[row].numpy(),
            _classes(explanation, batch, row),
            f"explained {batch.label_name(int(explanation.labels[row]))}, by {explanation.method}",
            batch.unit,
            batch.rate if batch.kind == "signal" else None,
            batch.r_peaks[row] if batch.r_peaks is not None else (),
            explanation.deviation is not None,
            frame_shares(explanation.maps[row]).float().numpy() if batch.kind == "video" else None,
            batch.leads,
            None if explanation.by_lead is None else _positive(explanation.by_lead[row]),
            tuple(statements(explanation, batch, row)[:NOTES]),
        )

    @property
    def title(self) -> str:
        return "\n".join(line for line in (self.classes, self.explained) if line)

    @property
    def clinical(self) -> bool:
        """Whether to draw twelve leads as clinicians read them."""
        return is_twelve_lead(self.leads) and bool(self.rate) and self.unit == "mV"

    def over_leads(self, count: int) -> Array:
        """(c, *size): the map of each lead, which is the same for all leads if the method does not tell them apart."""
        return self.heat[None].repeat(count, 0) if self.by_lead is None else self.by_lead


def _positive(by_lead: Tensor) -> Array:
    """(c, *size) -> the positive values over the highest."""
    heat: Array = (by_lead.clamp(min=0) / by_lead.max().clamp(min=1e-12)).numpy()
    return heat


def _classes(explanation: Explanation, batch: Batch, row: int) -> str:
    """The true and the predicted class, with probabilities if they are known."""
    classes = {"true": int(batch.y[row])} if batch.y.dim() == 1 else {}
    p = None if explanation.probabilities is None else explanation.probabilities[row]
    if p is not None:
        classes["predicted"] = int(p.argmax())
    known = {label: "" if p is None else f" (P {float(p[label]):.2f})" for label in classes.values()}
    return ", ".join(f"{word} {batch.label_name(label)}{known[label]}" for word, label in classes.items())


def picture(x: Array, bounds: tuple[float, float], over: Overlay | None = None) -> Image.Image:
    """Draw x (c, *size) with its map and mask, if any."""
    if over is not None and over.clinical:
        return clinical_sheet(x, over.over_leads(len(x)), over.leads, over.rate or 1.0, over.title, over.notes)
    return _strip(x, over) if kind_of(x.shape[1:]) == "signal" else _sheet(x, bounds, over)


def _frames(x: Array, bounds: tuple[float, float], over: Overlay | None, shown: Iterable[int]) -> list[Image.Image]:
    """These frames of a clip, enlarged to about SIDE pixels, with the map and the mask's border; an image is one frame."""
    colours = to_colours(scaled(x, value_range(bounds, x)))
    times = max(1, round(SIDE / max(colours.shape[-3:-1])))
    return [_frame(colours, over, i, times) for i in shown]


def _frame(colours: Array, over: Overlay | None, number: int, times: int) -> Image.Image:
    def enlarged(values: Any, axes: int) -> Any:
        """One frame of values (*size) or (*size, 3), where the last `axes` make up a frame."""
        return values.reshape(-1, *values.shape[-axes:])[number].repeat(times, 0).repeat(times, 1)

    shown = enlarged(colours, 3)
    if over is not None:
        heat, grey = enlarged(over.heat, 2), shown.mean(-1, keepdims=True)
        hot, strength = matplotlib.colormaps[HEAT](heat)[..., :3], 0.25 + 0.5 * heat[..., None]
        shown = (1 - strength) * (0.5 * grey + 0.5 * shown) + strength * hot
        shown = np.where(border(enlarged(over.mask, 2))[..., None], LINE, shown)
    return Image.fromarray((shown.clip(0, 1) * 255).round().astype(np.uint8))


def border(mask: Mask) -> Mask:
    """(h, w): points of the mask with a neighbour outside it."""
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.logical_and(mask, ~inner)


def _sheet(x: Array, bounds: tuple[float, float], over: Overlay | None) -> Image.Image:
    """The image, or frames side by side (those with the largest shares of the map, or evenly spaced), with a legend."""
    count, shares = math.prod(x.shape[1:-2]), None if over is None else over.frames
    shown = np.linspace(0, count - 1, min(FRAMES, count)).round().astype(int)
    if shares is not None:
        shown = np.sort(np.argsort(-shares, kind="stable")[:FRAMES])
    parts = _frames(x, bounds, over, shown.tolist())
    if over is None:
        sheet = Image.new("RGB", (sum(part.width + 4 for part in parts) - 4, parts[0].height), "white")
        for at, part in enumerate(parts):
            sheet.paste(part, (at * (part.width + 4), 0))
        return sheet
    with matplotlib.rc_context(STYLE):
        figure = new_figure(sum(part.width for part in parts) / DPI + 0.9, parts[0].height / DPI + 0.75)
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        for ax, part, frame in zip(axes, parts, shown, strict=True):
            ax.imshow(part)
            ax.set_axis_off()
            if shares is not None:
                ax.set_title(f"frame {frame + 1}: {shares[frame]:.0%}", fontsize=6, pad=2)
        figure.suptitle(over.title, fontsize=7, x=0.02, ha="left")
        border_line = Line2D([], [], color=tuple(LINE), linewidth=1.5, label="the mask's border")
        return _finished(figure, list(axes), HEAT, border_line, over)


def _finished(figure: Figure, axes: list[Axes], colours: str, mask: Artist, over: Overlay) -> Image.Image:
    """The figure with a colour bar and a legend, drawn."""
    scale = matplotlib.cm.ScalarMappable(cmap=colours)
    bar = figure.colorbar(scale, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 1])
    bar.ax.set_yticklabels(["least", "most"], fontsize=6)
    paler = [Patch(color="none", label="paler: less sure")] if over.paler else []
    figure.legend(handles=[mask, *paler], loc="outside lower left", fontsize=6, ncols=2)
    return _drawn(figure)


def _drawn(figure: Figure) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


def _strip(x: Array, over: Overlay | None) -> Image.Image:
    """The leads above each other, in seconds and their unit, on ECG paper if that is mV.

    The map is a band behind them, the mask a bar below; the waves of a beat are named above.
    """
    rate, unit = (None, "") if over is None else (over.rate, over.unit)
    step, paper = 1 / (rate or 1.0), bool(rate) and unit == "mV"
    at, end = (np.arange(x.shape[1]) + 0.5) * step, x.shape[1] * step
    with matplotlib.rc_context(STYLE):
        figure = new_figure(STRIP[0], max(STRIP[1], 1.0 + LEAD * len(x)))
        rows = figure.subplots(len(x), 1, sharex=True, squeeze=False)[:, 0]
        heats = [None] * len(x) if over is None else over.over_leads(len(x))
        for ax, lead, heat in zip(rows, x, heats, strict=True):
            pad = 0.12 * (float(np.ptp(lead)) or 1.0)
            low, high = float(lead.min()) - pad, float(lead.max()) + pad
            if paper:
                _draw_paper(ax, end, low, high)
            if over is not None and heat is not None:
                ax.imshow(
                    heat[None], aspect="auto", cmap=BAND, vmin=0, vmax=1, interpolation="nearest", zorder=1,
                    extent=(0, end, low, high), alpha=heat[None].clip(0, 1),
                )  # fmt: skip
                ax.fill_between(at, low, low + 0.6 * pad, where=over.mask.tolist(), color=MASKED, step="mid")
            ax.plot(at, lead, color="#222222", linewidth=1.0)
            ax.set(xlim=(0, end), ylim=(low, high), ylabel=unit)
            tidy(ax, keep=("left", "bottom"))
            ax.tick_params(labelsize=6)
        rows[-1].set_xlabel("seconds" if rate else "points", fontsize=7)
        if over is None:
            return _drawn(figure)
        for name, cut in waves(over.r_peaks, rate, x.shape[1]) if paper else ():
            place = ((cut.start + cut.stop) / 2 * step, 1.0)
            rows[0].annotate(name, place, xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=6)
        rows[0].set_title(over.title, fontsize=7, loc="left", pad=9)
        return _finished(figure, list(rows), BAND, Patch(color=MASKED, label="the mask"), over)


def _draw_paper(ax: Axes, end: float, low: float, high: float) -> None:
    """Small boxes of 40 ms by 0.1 mV, and large ones of 200 ms by 0.5 mV."""
    for step, rise, width in ((0.04, 0.1, 0.2), (0.2, 0.5, 0.5)):
        look: dict[str, Any] = {"colors": "#F2B8B5", "linewidth": width, "zorder": 0}
        ax.vlines(np.arange(0, end + step / 2, step), low, high, **look)
        ax.hlines(np.arange(math.floor(low / rise) * rise, high, rise), 0, end, **look)


def draw_maps(explained: Mapping[str, Explanation], batch: Batch, rows: Sequence[int]) -> Figure:
    """One row of pictures for each sample, with the map of every method over its input; images by one method share a row."""
    drawn = [
        [picture(batch.x[row].numpy(), batch.bounds, Overlay.of(each, batch, row)) for each in explained.values()]
        for row in rows
    ]
    if len(explained) == 1 and batch.kind == "image":
        drawn = [[line[0] for line in drawn]]
    widths = [max(line[at].width for line in drawn) for at in range(len(drawn[0]))]
    heights = [max(part.height for part in line) for line in drawn]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(sum(widths) / DPI, sum(heights) / DPI)
        ratios: dict[str, Any] = {"width_ratios": widths, "height_ratios": heights}
        for axes, line in zip(
            figure.subplots(len(drawn), len(widths), squeeze=False, gridspec_kw=ratios), drawn, strict=True
        ):
            for ax, part in zip(axes, line, strict=True):
                ax.imshow(part)
                ax.set_axis_off()
        return figure


def save_overlays(explanation: Explanation, batch: Batch, folder: Path, limit: int) -> list[Path]:
    """Write a PNG for each of the first samples, and a GIF if the samples are clips."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for row in range(min(limit, len(batch))):
        x, over = batch.x[row].numpy(), Overlay.of(explanation, batch, row)
        stem = f"{row:03d}_{file_name(Path(batch.ids[row]).stem)}_{file_name(explanation.method)}"
        drawn.append(folder / f"{stem}.png")
        with replacing(drawn[-1]) as file:
            picture(x, batch.bounds, over).save(file, "PNG")
        if batch.kind == "video":
            drawn.append(folder / f"{stem}.gif")
            first, *rest = _frames(x, batch.bounds, over, range(x.shape[1]))
            wait = int(np.clip(1000 / (batch.rate or SLOW), SHORTEST, LONGEST))
            with replacing(drawn[-1]) as file:
                first.save(file, "GIF", save_all=True, append_images=rest, duration=wait, loop=0)
    return drawn
