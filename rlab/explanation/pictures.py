"""Maps as pictures: colour over an image, a strip over a signal, or colour over the important frames of a clip."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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

from rlab.core.channels import is_twelve_lead
from rlab.data.batch import Batch
from rlab.explanation.clinical import clinical_sheet, draw_heat
from rlab.explanation.maps import to_unit
from rlab.explanation.words import frame_shares, statements
from rlab.present.colours import scaled, to_colours, value_range
from rlab.present.inline import figure_image, to_image
from rlab.present.style import DPI, INK, STYLE, new_figure, tidy
from rlab.present.waves import waves
from rlab.results.plots.signal import draw_boxes
from rlab.results.viewers.heat import BAND, FULL, OVER, SIGNED, Heat, Mask, Shown, mixed
from rlab.storage.files import replacing
from rlab.storage.names import file_name

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation

SIDE, FRAMES = 224, 4  # pixels of an image's longer side; frames of a clip side by side
LINE, MASKED = np.array([0.0, 0.95, 0.85]), "#0072B2"
STRIP, LEAD = (4.2, 2.1), 0.45  # inches of a strip, and of each of many leads
NOTES = 3  # sentences below a sheet of twelve leads


@dataclass(frozen=True)
class Overlay(Heat):
    """A map and a mask to draw over an input, and facts to show beside them."""

    classes: str = ""  # the true and the predicted class
    explained: str = ""
    paler: bool = False  # whether the method knows how sure it is
    notes: tuple[str, ...] = ()  # sentences below a sheet of twelve leads

    @classmethod
    def of(cls, explanation: Explanation, batch: Batch, row: int) -> Overlay:
        heat = to_unit(explanation.maps[row : row + 1])[0]
        if explanation.deviation is not None:  # how certain the sign of the map is
            ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
            heat = heat * torch.erf(ratio / 2**0.5)
        leads, signed = None if explanation.by_lead is None else explanation.by_lead[row], explanation.drops is not None
        if leads is not None:
            leads = leads.clamp(min=0) / leads.max().clamp(min=1e-12)
        if explanation.drops is not None:  # on one scale for all records
            leads = (explanation.drops[row] / FULL).clamp(-1, 1)
        return cls(
            heat.numpy(),
            explanation.mask[row].numpy(),
            frame_shares(explanation.maps[row]).float().numpy() if batch.kind == "video" else None,
            None if leads is None else leads.numpy(),
            signed,
            _classes(explanation, batch, row),
            f"explained {batch.label_name(int(explanation.labels[row]))}, by {explanation.method}",
            explanation.deviation is not None,
            tuple(statements(explanation, batch, row)[:NOTES]),
        )

    @property
    def title(self) -> str:
        return "\n".join(line for line in (self.classes, self.explained) if line)


def shown_of(batch: Batch, row: int) -> Shown:
    """An input to draw."""
    truth = None if batch.masks is None else batch.masks[row].numpy()
    peaks = () if batch.r_peaks is None else batch.r_peaks[row]
    return Shown(batch.x[row].numpy(), batch.bounds, truth, batch.rate, batch.unit, batch.leads, peaks)


def is_clinical(batch: Batch) -> bool:
    """Whether to draw twelve leads as clinicians read them."""
    return batch.kind == "signal" and is_twelve_lead(batch.leads) and bool(batch.rate) and batch.unit == "mV"


def _classes(explanation: Explanation, batch: Batch, row: int) -> str:
    """The true and the predicted class, with probabilities if they are known."""
    classes = {"true": int(batch.y[row])} if batch.y.dim() == 1 else {}
    p = None if explanation.probabilities is None else explanation.probabilities[row]
    if p is not None:
        classes["predicted"] = int(p.argmax())
    known = {label: "" if p is None else f" (P {float(p[label]):.2f})" for label in classes.values()}
    return ", ".join(f"{word} {batch.label_name(label)}{known[label]}" for word, label in classes.items())


def picture(explanation: Explanation, batch: Batch, row: int) -> Image.Image:
    """Draw an input with its map and mask."""
    shown, over = shown_of(batch, row), Overlay.of(explanation, batch, row)
    if is_clinical(batch):
        heat = over.over_leads(len(shown.x))
        return clinical_sheet(shown.x, heat, shown.leads, shown.rate or 1.0, over.title, over.notes, over.signed)
    return _strip(shown, over) if batch.kind == "signal" else _sheet(shown, over)


def _frames(shown: Shown, over: Overlay, numbers: Iterable[int]) -> list[Image.Image]:
    """These frames of a clip, enlarged to about SIDE pixels, with the map and the mask's border; an image is one frame."""
    height, width = shown.x.shape[-2:]
    times = max(1, round(SIDE / max(height, width)))
    colours = to_colours(scaled(shown.x, value_range(shown.bounds, shown.x))).reshape(-1, height, width, 3)
    hot, masks = mixed(colours, over.heat.reshape(-1, height, width)), over.mask.reshape(-1, height, width)
    drawn = []
    for number in numbers:
        large, mask = (part[number].repeat(times, 0).repeat(times, 1) for part in (hot, masks))
        drawn.append(to_image(np.where(border(mask)[..., None], LINE, large)))
    return drawn


def border(mask: Mask) -> Mask:
    """(h, w): points of the mask with a neighbour outside it."""
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.logical_and(mask, ~inner)


def _sheet(shown: Shown, over: Overlay) -> Image.Image:
    """The image, or the frames with the largest shares of the map side by side, with a legend."""
    best = [0] if over.frames is None else np.sort(np.argsort(-over.frames, kind="stable")[:FRAMES]).tolist()
    parts = _frames(shown, over, best)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(sum(part.width for part in parts) / DPI + 0.9, parts[0].height / DPI + 0.75)
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        for ax, part, frame in zip(axes, parts, best, strict=True):
            ax.imshow(part)
            ax.set_axis_off()
            if over.frames is not None:
                ax.set_title(f"frame {frame + 1}: {over.frames[frame]:.0%}", fontsize=6, pad=2)
        figure.suptitle(over.title, fontsize=7, x=0.02, ha="left")
        border_line = Line2D([], [], color=tuple(LINE), linewidth=1.5, label="the mask's border")
        return _finished(figure, list(axes), OVER, border_line, over)


def _finished(figure: Figure, axes: list[Axes], colours: str, mask: Artist, over: Overlay) -> Image.Image:
    """The figure with a colour bar and a legend, drawn."""
    scale = matplotlib.cm.ScalarMappable(cmap=colours)
    bar = figure.colorbar(scale, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 1])
    ends = [f"-{FULL:g}", f"+{FULL:g}"] if over.signed else ["least", "most"]
    bar.ax.set_yticklabels(ends, fontsize=6)
    paler = [Patch(color="none", label="paler: less sure")] if over.paler else []
    figure.legend(handles=[mask, *paler], loc="outside lower left", fontsize=6, ncols=2)
    return figure_image(figure)


def _strip(shown: Shown, over: Overlay) -> Image.Image:
    """The leads above each other, in seconds and their unit, on ECG paper if that is mV.

    The map is a band behind them, the mask a bar below; the waves of a beat are named above.
    """
    x, rate, paper = shown.x, shown.rate, bool(shown.rate) and shown.unit == "mV"
    step = 1 / (rate or 1.0)
    at, end = (np.arange(x.shape[1]) + 0.5) * step, x.shape[1] * step
    with matplotlib.rc_context(STYLE):
        figure = new_figure(STRIP[0], max(STRIP[1], 1.0 + LEAD * len(x)))
        rows = figure.subplots(len(x), 1, sharex=True, squeeze=False)[:, 0]
        for ax, lead, heat in zip(rows, x, over.over_leads(len(x)), strict=True):
            pad = 0.12 * (float(np.ptp(lead)) or 1.0)
            low, high = float(lead.min()) - pad, float(lead.max()) + pad
            if paper:
                draw_boxes(ax, (0, end), (low, high))
            draw_heat(ax, heat, (0, end, low, high), signed=over.signed)
            ax.fill_between(at, low, low + 0.6 * pad, where=over.mask.tolist(), color=MASKED, step="mid", zorder=3)
            ax.plot(at, lead, color=INK, linewidth=1.0, zorder=4)
            ax.set(xlim=(0, end), ylim=(low, high), ylabel=shown.unit)
            tidy(ax, keep=("left", "bottom"))
            ax.tick_params(labelsize=6)
        rows[-1].set_xlabel("seconds" if rate else "points", fontsize=7)
        for name, cut in waves(shown.r_peaks, rate, x.shape[1]) if paper else ():
            place = ((cut.start + cut.stop) / 2 * step, 1.0)
            rows[0].annotate(name, place, xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=6)
        rows[0].set_title(over.title, fontsize=7, loc="left", pad=9)
        return _finished(
            figure, list(rows), SIGNED if over.signed else BAND, Patch(color=MASKED, label="the mask"), over
        )


def draw_maps(explained: Mapping[str, Explanation], batch: Batch, rows: Sequence[int]) -> Figure:
    """One row of pictures for each sample, with the map of every method over its input; images by one method share a row."""
    drawn = [[picture(each, batch, row) for each in explained.values()] for row in rows]
    if len(explained) == 1 and batch.kind == "image":
        drawn = [[line[0] for line in drawn]]
    widths = [max(line[at].width for line in drawn) for at in range(len(drawn[0]))]
    heights = [max(part.height for part in line) for line in drawn]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(sum(widths) / DPI, sum(heights) / DPI)
        ratios: dict[str, Any] = {"width_ratios": widths, "height_ratios": heights}
        axes = figure.subplots(len(drawn), len(widths), squeeze=False, gridspec_kw=ratios)
        for ax, part in zip(axes.flat, chain.from_iterable(drawn), strict=True):
            ax.imshow(part)
            ax.set_axis_off()
        return figure


def save_overlays(explanation: Explanation, batch: Batch, folder: Path, limit: int) -> None:
    """Write a PNG for each of the first samples."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in range(min(limit, len(batch))):
        stem = f"{row:03d}_{file_name(Path(batch.ids[row]).stem)}_{file_name(explanation.method)}"
        with replacing(folder / f"{stem}.png") as file:
            picture(explanation, batch, row).save(file, "PNG")
