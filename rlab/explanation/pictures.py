"""Maps as pictures: heat over an image, a strip over a signal, heat over the frames of a clip."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.maps import to_unit
from rlab.present.plots.moving import LONGEST, SHORTEST
from rlab.present.plots.pixels import to_colours
from rlab.present.plots.style import STYLE, new_figure, tidy
from rlab.present.waves import waves
from rlab.runs.files import replacing
from rlab.runs.names import file_name

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
SIDE, FRAMES = 224, 4  # pixels of an image's longer side, frames of a clip shown side by side
HEAT, LINE = "magma", np.array([0.0, 0.95, 0.85])
STRIP = (4.2, 1.9)  # inches
SLOW = 8.0  # frames a second where the clip's own is not known


@dataclass(frozen=True)
class About:
    """What is told beside the values."""

    title: str = ""
    unit: str = ""
    rate: float | None = None  # samples a second
    r_peaks: tuple[int, ...] = ()
    sure: Array | None = None  # (*size) in [0, 1]: how sure the map is; less is paler


def picture(
    x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float], about: About | None = None
) -> Image.Image:
    """x (c, *size), its map (*size) in [0, 1] and its mask (*size); the input alone where both are None."""
    about = about or About()
    heat = heat if heat is None or about.sure is None else heat * about.sure
    return _strip(x, heat, mask, about) if x.ndim == 2 else _sheet(x, heat, mask, bounds)


def _unit(x: Array, bounds: tuple[float, float]) -> Array:
    low, high = bounds if math.isfinite(bounds[1] - bounds[0]) else (float(x.min()), float(x.max()))
    return ((x - low) / ((high - low) or 1.0)).clip(0, 1)


def _over(colours: Array, heat: Array | None, mask: Mask | None) -> Image.Image:
    """(h, w, 3) with heat where the map is high and the mask's border as a line, enlarged to at least SIDE pixels."""
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
    x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float], shown: int
) -> list[Image.Image]:
    """So many frames of a clip, spread evenly; an image is a clip of one."""
    colours = to_colours(_unit(x, bounds))
    colours = colours.reshape(-1, *colours.shape[-3:])
    at = np.linspace(0, len(colours) - 1, min(shown, len(colours))).round().astype(int)
    heats, masks = (None if values is None else values.reshape(colours.shape[:3]) for values in (heat, mask))
    return [_over(colours[i], None if heats is None else heats[i], None if masks is None else masks[i]) for i in at]


def _sheet(x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float]) -> Image.Image:
    """Some frames side by side."""
    parts = _frames(x, heat, mask, bounds, FRAMES)
    sheet = Image.new("RGB", (sum(part.width + 4 for part in parts) - 4, parts[0].height), "white")
    for at, part in enumerate(parts):
        sheet.paste(part, (at * (part.width + 4), 0))
    return sheet


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
                ax.fill_between(at, low - pad, low - 0.4 * pad, where=mask.tolist(), color="#0072B2", step="mid")
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
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


def _draw_paper(ax: Axes, end: float, heights: tuple[float, float]) -> None:
    """Small boxes of 40 ms by .1 mV, large ones of 200 ms by .5 mV."""
    for step, rise, width in ((0.04, 0.1, 0.2), (0.2, 0.5, 0.5)):
        for at in np.arange(0, end + step / 2, step):
            ax.axvline(at, color="#F2B8B5", linewidth=width, zorder=0)
        for at in np.arange(math.floor(heights[0] / rise) * rise, heights[1], rise):
            ax.axhline(at, color="#F2B8B5", linewidth=width, zorder=0)


def arrays(explanation: Explanation, batch: Batch, row: int) -> tuple[Array, Array, Mask]:
    return batch.x[row].numpy(), to_unit(explanation.maps[row : row + 1])[0].numpy(), explanation.mask[row].numpy()


def about(explanation: Explanation, batch: Batch, row: int) -> About:
    """The true class, the one explained, the waves' places, and how sure the map is of its sign at each point."""
    true = f"true {batch.label_name(int(batch.y[row]))}, " if batch.y.dim() == 1 else ""
    title = f"{true}explained {batch.label_name(int(explanation.labels[row]))}, by {explanation.method}"
    peaks = batch.r_peaks[row] if batch.r_peaks is not None else ()
    sure = None
    if explanation.deviation is not None:
        ratio = explanation.maps[row].abs() / explanation.deviation[row].clamp(min=1e-12)
        sure = torch.erf(ratio / 2**0.5).numpy()
    return About(title, batch.unit, batch.rate if batch.kind == "signal" else None, peaks, sure)


def save_overlays(explanation: Explanation, batch: Batch, folder: Path, limit: int) -> list[Path]:
    """A PNG for each of the first samples, and a moving GIF where the samples are clips."""
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
            first, *rest = _frames(x, heat, mask, batch.bounds, x.shape[1])
            wait = int(np.clip(1000 / (batch.rate or SLOW), SHORTEST, LONGEST))
            with replacing(drawn[-1]) as file:
                first.save(file, "GIF", save_all=True, append_images=rest, duration=wait, loop=0)
    return drawn
