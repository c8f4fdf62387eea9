"""Maps as pictures: heat over an image, a strip over a signal, heat over the frames of a clip."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.maps import to_unit
from rlab.present.plots.moving import LONGEST, SHORTEST
from rlab.present.plots.pixels import to_colours
from rlab.present.plots.style import STYLE, new_figure, tidy
from rlab.runs.files import replacing
from rlab.runs.names import file_name

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]
SIDE, FRAMES = 224, 4  # pixels of an image's longer side, frames of a clip shown side by side
HEAT, LINE = "magma", np.array([0.0, 0.95, 0.85])
STRIP = (4.2, 1.9)  # inches
SLOW = 8.0  # frames a second where the clip's own is not known


def picture(x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float]) -> Image.Image:
    """x (c, *size), its map (*size) in [0, 1] and its mask (*size); the input alone where both are None."""
    return DRAWN[x.ndim - 2](x, heat, mask, bounds)


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


def _strip(x: Array, heat: Array | None, mask: Mask | None, bounds: tuple[float, float]) -> Image.Image:
    """The leads above each other over a band of heat; the mask is a bar beneath."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(*STRIP)
        rows = figure.subplots(len(x), 1, sharex=True, squeeze=False)[:, 0]
        for ax, lead in zip(rows, x, strict=True):
            low, high = float(lead.min()), float(lead.max())
            pad = 0.12 * ((high - low) or 1.0)
            if heat is not None:
                ax.imshow(
                    heat[None], aspect="auto", cmap="YlOrRd", vmin=0, vmax=1.3, interpolation="nearest",
                    extent=(-0.5, len(lead) - 0.5, low - pad, high + pad),
                )  # fmt: skip
            if mask is not None:
                ax.fill_between(
                    np.arange(len(lead)), low - pad, low - 0.4 * pad, where=mask.tolist(), color="#0072B2", step="mid"
                )
            ax.plot(lead, color="#222222", linewidth=1.0)
            ax.set(xlim=(-0.5, len(lead) - 0.5), ylim=(low - pad, high + pad), xticks=[], yticks=[])
            tidy(ax, keep=())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


DRAWN: tuple[Callable[..., Image.Image], ...] = (_strip, _sheet, _sheet)  # by rank from 1


def arrays(explanation: Explanation, batch: Batch, row: int) -> tuple[Array, Array, Mask]:
    return batch.x[row].numpy(), to_unit(explanation.maps[row : row + 1])[0].numpy(), explanation.mask[row].numpy()


def save_overlays(explanation: Explanation, batch: Batch, folder: Path, limit: int) -> list[Path]:
    """A PNG for each of the first samples, and a moving GIF where the samples are clips."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for row in range(min(limit, len(batch))):
        x, heat, mask = arrays(explanation, batch, row)
        stem = f"{row:03d}_{file_name(Path(batch.ids[row]).stem)}_{file_name(explanation.method)}"
        drawn.append(folder / f"{stem}.png")
        with replacing(drawn[-1]) as file:
            picture(x, heat, mask, batch.bounds).save(file, "PNG")
        if batch.kind == "video":
            drawn.append(folder / f"{stem}.gif")
            first, *rest = _frames(x, heat, mask, batch.bounds, x.shape[1])
            wait = int(np.clip(1000 / (batch.rate or SLOW), SHORTEST, LONGEST))
            with replacing(drawn[-1]) as file:
                first.save(file, "GIF", save_all=True, append_images=rest, duration=wait, loop=0)
    return drawn
