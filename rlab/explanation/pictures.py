"""Maps as pictures: colour over an image, a strip over a signal, or colour over the important frames of a clip."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.maps import to_unit
from rlab.explanation.words import frame_shares
from rlab.present.colours import to_colours
from rlab.present.style import DPI, STYLE, new_figure, tidy
from rlab.present.waves import waves
from rlab.results.plots.moving import LONGEST, SHORTEST
from rlab.storage.files import replacing
from rlab.storage.names import file_name

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
SIDE, FRAMES = 224, 4  # pixels of an image's longer side; frames of a clip side by side
HEAT, LINE, MASKED = "magma", np.array([0.0, 0.95, 0.85]), "#0072B2"
STRIP = (4.2, 2.1)  # inches
SLOW = 8.0  # frames per second if the clip's rate is unknown


@dataclass(frozen=True)
class About:
    """Facts to show beside the values."""

    title: str = ""
    unit: str = ""
    rate: float | None = None  # samples per second
    r_peaks: tuple[int, ...] = ()
    sure: Array | None = None  # (*size) in [0, 1]: certainty of the map; lower is paler
    frames: Array | None = None  # (t,) share of the map in each frame of a clip


def picture(
    x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float], about: About | None = None
) -> Image.Image:
    """Draw x (c, *size), its map (*size) in [0, 1] and its mask (*size); only the input if both are None."""
    about = about or About()
    heat = heat if heat is None or about.sure is None else heat * about.sure
    return _strip(x, heat, mask, about) if x.ndim == 2 else _sheet(x, heat, mask, bounds, about)


def _unit(x: Array, bounds: tuple[float, float]) -> Array:
    low, high = bounds if math.isfinite(bounds[1] - bounds[0]) else (float(x.min()), float(x.max()))
    return ((x - low) / ((high - low) or 1.0)).clip(0, 1)


def _over(colours: Array, heat: Array | None, mask: Mask | None) -> Image.Image:
    """Draw the map over colours (h, w, 3) and the mask's border as a line, enlarged to about SIDE pixels."""
    times = max(1, round(SIDE / max(colours.shape[:2])))
    shown = colours.repeat(times, 0).repeat(times, 1)
    if heat is not None:
        heat, grey = heat.repeat(times, 0).repeat(times, 1), shown.mean(-1, keepdims=True)
        hot, strength = matplotlib.colormaps[HEAT](heat)[..., :3], 0.25 + 0.5 * heat[..., None]
        shown = (1 - strength) * (0.5 * grey + 0.5 * shown) + strength * hot
    if mask is not None:
        shown = np.where(border(mask.repeat(times, 0).repeat(times, 1))[..., None], LINE, shown)
    return Image.fromarray((shown.clip(0, 1) * 255).round().astype(np.uint8))


def border(mask: Mask) -> Mask:
    """(h, w): points of the mask with a neighbour outside it."""
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.logical_and(mask, ~inner)


def _frames(
    x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float], shown: Iterable[int]
) -> list[Image.Image]:
    """These frames of a clip; an image is a clip of one frame."""
    colours = to_colours(_unit(x, bounds))
    colours = colours.reshape(-1, *colours.shape[-3:])
    heats, masks = (None if values is None else values.reshape(colours.shape[:3]) for values in (heat, mask))
    return [_over(colours[i], None if heats is None else heats[i], None if masks is None else masks[i]) for i in shown]


def _sheet(x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float], about: About) -> Image.Image:
    """The image, or frames side by side (those with the largest shares of the map, or evenly spaced), with a legend."""
    count, shares = math.prod(x.shape[1:-2]), about.frames
    shown = np.linspace(0, count - 1, min(FRAMES, count)).round().astype(int)
    if shares is not None:
        shown = np.sort(np.argsort(-shares, kind="stable")[:FRAMES])
    parts = _frames(x, heat, mask, bounds, shown.tolist())
    if heat is None:
        return _beside(parts)
    with matplotlib.rc_context(STYLE):
        wide, high = (sum(part.width for part in parts) / DPI, parts[0].height / DPI)
        figure = new_figure(wide + 0.9, high + 0.75)
        axes = figure.subplots(1, len(parts), squeeze=False)[0]
        for ax, part, frame in zip(axes, parts, shown, strict=True):
            ax.imshow(part)
            ax.set_axis_off()
            if shares is not None:
                ax.set_title(f"frame {frame}: {shares[frame]:.0%}", fontsize=6, pad=2)
        figure.suptitle(about.title, fontsize=7, x=0.02, ha="left")
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(cmap=HEAT), ax=list(axes), fraction=0.04, pad=0.02, ticks=[0, 1]
        )
        bar.ax.set_yticklabels(["least", "most"], fontsize=6)
        if mask is not None:
            _legend(figure, Line2D([], [], color=tuple(LINE), linewidth=1.5, label="the mask's border"), about)
        return _drawn(figure)


def _legend(figure: Figure, mask: Artist, about: About) -> None:
    paler = [] if about.sure is None else [Patch(color="none", label="paler: less sure")]
    figure.legend(handles=[mask, *paler], loc="outside lower left", fontsize=6, ncols=2)


def _beside(parts: Sequence[Image.Image]) -> Image.Image:
    sheet = Image.new("RGB", (sum(part.width + 4 for part in parts) - 4, parts[0].height), "white")
    for at, part in enumerate(parts):
        sheet.paste(part, (at * (part.width + 4), 0))
    return sheet


def _drawn(figure: Figure) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


def _strip(x: Array, heat: Array | None, mask: Mask | None, about: About) -> Image.Image:
    """The leads above each other over a band of heat, in seconds and their unit, on ECG paper where that is mV; the mask is a
    bar beneath, the waves of a beat stand above it."""
    step, paper = 1 / (about.rate or 1.0), bool(about.rate) and about.unit == "mV"
    with matplotlib.rc_context(STYLE):
        figure = new_figure(*STRIP)
        rows = figure.subplots(len(x), 1, sharex=True, squeeze=False)[:, 0]
        for ax, lead in zip(rows, x, strict=True):
            low, high, end = float(lead.min()), float(lead.max()), len(lead) * step
            pad = 0.12 * ((high - low) or 1.0)
            if paper:
                _draw_paper(ax, end, (low - pad, high + pad))
            if heat is not None:
                band = ax.imshow(
                    heat[None], aspect="auto", cmap="YlOrRd", vmin=0, vmax=1, interpolation="nearest", zorder=1,
                    extent=(0, end, low - pad, high + pad), alpha=heat[None].clip(0, 1),
                )  # fmt: skip
            at = (np.arange(len(lead)) + 0.5) * step
            if mask is not None:
                ax.fill_between(at, low - pad, low - 0.4 * pad, where=mask.tolist(), color=MASKED, step="mid")
            ax.plot(at, lead, color="#222222", linewidth=1.0)
            ax.set(xlim=(0, end), ylim=(low - pad, high + pad), ylabel=about.unit)
            tidy(ax, keep=("left", "bottom"))
            ax.tick_params(labelsize=6)
        for name, cut in waves(about.r_peaks, about.rate, x.shape[1]) if paper else ():
            middle = (cut.start + cut.stop) / 2 * step
            rows[0].annotate(
                name, (middle, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=6
            )
        rows[-1].set_xlabel("seconds" if about.rate else "points", fontsize=7)
        if about.title:
            rows[0].set_title(about.title, fontsize=7, loc="left", pad=9)
        if heat is not None:
            bar = figure.colorbar(band, ax=list(rows), fraction=0.03, pad=0.02, ticks=[0, 1])
            bar.ax.set_yticklabels(["least", "most"], fontsize=6)
        if mask is not None and heat is not None:
            _legend(figure, Patch(color=MASKED, label="the mask"), about)
        return _drawn(figure)


def _draw_paper(ax: Axes, end: float, heights: tuple[float, float]) -> None:
    """Small boxes of 40 ms by 0.1 mV, and large ones of 200 ms by 0.5 mV."""
    for step, rise, width in ((0.04, 0.1, 0.2), (0.2, 0.5, 0.5)):
        for at in np.arange(0, end + step / 2, step):
            ax.axvline(at, color="#F2B8B5", linewidth=width, zorder=0)
        for at in np.arange(math.floor(heights[0] / rise) * rise, heights[1], rise):
            ax.axhline(at, color="#F2B8B5", linewidth=width, zorder=0)


def arrays(explanation: Explanation, batch: Batch, row: int) -> tuple[Array, Array, Mask]:
    """The input (c, *size), its map (*size) in [0, 1] and its mask (*size)."""
    return batch.x[row].numpy(), to_unit(explanation.maps[row : row + 1])[0].numpy(), explanation.mask[row].numpy()


def about(explanation: Explanation, batch: Batch, row: int) -> About:
    """The true, predicted and explained classes, R peaks, and how certain the sign of the map is."""
    explained = f"explained {batch.label_name(int(explanation.labels[row]))}, by {explanation.method}"
    title = "\n".join(line for line in (_classes(explanation, batch, row), explained) if line)
    peaks = batch.r_peaks[row] if batch.r_peaks is not None else ()
    sure = None
    if explanation.deviation is not None:
        ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
        sure = torch.erf(ratio / 2**0.5).numpy()
    frames = frame_shares(explanation.maps[row]).float().numpy() if batch.kind == "video" else None
    return About(title, batch.unit, batch.rate if batch.kind == "signal" else None, peaks, sure, frames)


def _classes(explanation: Explanation, batch: Batch, row: int) -> str:
    """The true and the predicted class, with probabilities if they are known."""
    classes = {"true": int(batch.y[row])} if batch.y.dim() == 1 else {}
    p = None if explanation.probabilities is None else explanation.probabilities[row]
    if p is None:
        return ", ".join(f"{word} {batch.label_name(label)}" for word, label in classes.items())
    classes["predicted"] = int(p.argmax())
    return ", ".join(f"{word} {batch.label_name(label)} (P {float(p[label]):.2f})" for word, label in classes.items())


def save_overlays(explanation: Explanation, batch: Batch, folder: Path, limit: int) -> list[Path]:
    """Write a PNG for each of the first samples, and a GIF if the samples are clips."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for row in range(min(limit, len(batch))):
        x, heat, mask = arrays(explanation, batch, row)
        stem = f"{row:03d}_{file_name(Path(batch.ids[row]).stem)}_{file_name(explanation.method)}"
        drawn.append(folder / f"{stem}.png")
        with replacing(drawn[-1]) as file:
            picture(x, heat, mask, batch.bounds, about(explanation, batch, row)).save(file, "PNG")
        if batch.kind == "video":
            drawn.append(folder / f"{stem}.gif")
            first, *rest = _frames(x, heat, mask, batch.bounds, range(x.shape[1]))
            wait = int(np.clip(1000 / (batch.rate or SLOW), SHORTEST, LONGEST))
            with replacing(drawn[-1]) as file:
                first.save(file, "GIF", save_all=True, append_images=rest, duration=wait, loop=0)
    return drawn
