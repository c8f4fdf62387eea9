"""What a notebook shows of a result, a batch or a map that is a cell's value: few words, a curve, some samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import uuid4

import matplotlib
import numpy as np
from PIL import Image
from torch import Tensor

from rlab.data.batch import Batch
from rlab.present.chart import Chart, Curve, attack_charts
from rlab.present.inline import image_address
from rlab.present.page import Block, Charts, Facts, Gallery, Number, Picture, Text, templates
from rlab.results.page import key_numbers
from rlab.results.plots.pixels import to_colours
from rlab.results.plots.sample import Array, Sample
from rlab.results.plots.save import choose
from rlab.results.result import AttackResult
from rlab.results.viewers import make_viewer, shelf

SAMPLES, SIDE = 3, 128  # shown of each; pixels of a small picture
_CLASSES = 12


def blocks_html(blocks: Sequence[Block], numbers: Sequence[Number] = ()) -> str:
    """Blocks of a page alone: without its script there is nothing to move."""
    environment = templates()
    style = environment.get_template("style.css").render().replace(":root", "&").replace("body {", "& {")
    return environment.get_template("notebook.html").render(blocks=blocks, numbers=numbers, style=style)


def result_html(result: AttackResult) -> str:
    """The sentence, the five figures, the anytime curve and three samples."""
    own, rows = uuid4().hex[:8], choose(result, SAMPLES)  # ids of several cells must differ
    viewers = [make_viewer(Sample.of(result, i), f"cell-{own}-{i}", SAMPLES, moving=False) for i in rows]
    shown = shelf(viewers, result.setting.grid.rank, moving=False) if viewers else []
    charts = attack_charts({"": result})
    return blocks_html(
        [Text(f"{result.sentence}."), *([Charts(charts)] if charts else []), *shown], key_numbers(result)
    )


def batch_html(batch: Batch) -> str:
    """What kind of data it is, its classes, and the first samples."""
    kind = f"{len(batch)} {batch.kind} samples of size {' × '.join(map(str, batch.size))}"
    low, high = batch.bounds if np.isfinite(batch.bounds).all() else (float(batch.x.min()), float(batch.x.max()))
    facts = {
        "data": kind,
        "channels": f"{batch.x.shape[1]}",
        "values": f"{low:.3g} to {high:.3g} {batch.unit}".rstrip(),
    }
    facts |= {"rate": f"{batch.rate:g} a second"} if batch.rate else {}
    facts |= {"classes": _classes(batch)} | ({"left out": f"{len(batch.left_out)}"} if batch.left_out else {})
    return blocks_html(
        [Facts(facts), *thumbnails(batch.x[:SAMPLES], batch.ids, (low, high), batch.rate if batch.rank == 1 else None)]
    )


def _classes(batch: Batch) -> str:
    counts = Counter(
        batch.y.tolist() if batch.y.dim() == 1 else [k for row in batch.y for k in row.nonzero().flatten().tolist()]
    )
    told = [f"{batch.label_name(k)} {count}" for k, count in sorted(counts.items())[:_CLASSES]]
    return ", ".join(told) + (f" and {len(counts) - _CLASSES} more" if len(counts) > _CLASSES else "")


def thumbnails(
    x: Tensor, names: Sequence[str], bounds: tuple[float, float] | None = None, rate: float | None = None
) -> list[Block]:
    """x (n, c, *size): signals as curves, images small, of clips the middle frame; one channel without bounds is heat."""
    if x.dim() == 3:
        time = np.arange(x.shape[2]) / (rate or 1.0)
        charts = [
            Chart(
                name, [Curve(f"{k + 1}", time, lead.numpy()) for k, lead in enumerate(leads)], "s" if rate else "point"
            )
            for name, leads in zip(names, x, strict=False)
        ]
        return [Charts(charts)]
    frames = x if x.dim() == 4 else x[:, :, x.shape[2] // 2]
    shown = [
        Picture(_small(frame.numpy(), bounds), name, caption=name) for name, frame in zip(names, frames, strict=False)
    ]
    return [Gallery(shown, 6)]


def _small(values: Array, bounds: tuple[float, float] | None) -> str:
    """(c, h, w)."""
    low, high = (float(values.min()), float(values.max())) if bounds is None else bounds
    unit = ((values - low) / ((high - low) or 1.0)).clip(0, 1)
    colours = matplotlib.colormaps["magma"](unit[0])[..., :3] if bounds is None else to_colours(unit)
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    times = SIDE / max(picture.size)
    way = Image.Resampling.NEAREST if times > 1 else Image.Resampling.LANCZOS
    return image_address(
        picture.resize((max(1, round(picture.width * times)), max(1, round(picture.height * times))), way)
    )


def maps_html(facts: Mapping[str, str], maps: Tensor, names: Sequence[str]) -> str:
    """Maps (n, *size) as heat, beneath what is known of them."""
    return blocks_html([Facts(facts), *thumbnails(maps[:SAMPLES, None], names)])
