"""HTML that notebooks show for a result, a batch or a map: a few words, a curve, some samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import uuid4

import matplotlib
import numpy as np
from PIL import Image
from torch import Tensor

from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.present.attack import key_numbers
from rlab.present.chart import Chart, Curve, attack_charts
from rlab.present.inline import image_address
from rlab.present.page import Block, Charts, Facts, Gallery, Number, Picture, Text, templates
from rlab.present.plots.pixels import scaled, to_colours, value_range
from rlab.present.plots.sample import Array, Sample
from rlab.present.plots.save import choose
from rlab.present.viewers import make_viewer, shelf

SAMPLES, SIDE = 3, 128  # samples to show; pixels of a thumbnail
_CLASSES = 12


def blocks_html(blocks: Sequence[Block], numbers: Sequence[Number] = ()) -> str:
    """Blocks without the page's script, so nothing is interactive."""
    environment = templates()
    style = environment.get_template("style.css").render().replace(":root", "&").replace("body {", "& {")
    return environment.get_template("notebook.html").render(blocks=blocks, numbers=numbers, style=style)


def result_html(result: AttackResult) -> str:
    """The sentence, the key figures, the anytime curve and three samples."""
    own, rows = uuid4().hex[:8], choose(result, SAMPLES)  # ids must differ between cells
    viewers = [make_viewer(Sample.of(result, i), f"cell-{own}-{i}", SAMPLES, moving=False) for i in rows]
    shown = shelf(viewers, result.setting.grid.rank, moving=False) if viewers else []
    charts = attack_charts({"": result})
    return blocks_html(
        [Text(f"{result.sentence}."), *([Charts(charts)] if charts else []), *shown], key_numbers(result)
    )


def batch_html(batch: Batch) -> str:
    """The kind of data, its classes, and the first samples."""
    kind = f"{len(batch)} {batch.kind} samples of size {' × '.join(map(str, batch.size))}"
    low, high = value_range(batch.bounds, batch.x.numpy())
    facts = {
        "data": kind,
        "channels": f"{batch.x.shape[1]}",
        "values": f"{low:.3g} to {high:.3g} {batch.unit}".rstrip(),
    }
    facts |= {"rate": f"{batch.rate:g} per second"} if batch.rate else {}
    facts |= {"classes": _classes(batch)} | ({"left out": f"{len(batch.left_out)}"} if batch.left_out else {})
    return blocks_html(
        [Facts(facts), *thumbnails(batch.x[:SAMPLES], batch.ids, (low, high), batch.rate if batch.rank == 1 else None)]
    )


def _classes(batch: Batch) -> str:
    counts = Counter(
        batch.y.tolist() if batch.y.dim() == 1 else [k for row in batch.y for k in row.nonzero().flatten().tolist()]
    )
    named = [f"{batch.label_name(k)} {count}" for k, count in sorted(counts.items())[:_CLASSES]]
    return ", ".join(named) + (f" and {len(counts) - _CLASSES} more" if len(counts) > _CLASSES else "")


def thumbnails(
    x: Tensor, names: Sequence[str], bounds: tuple[float, float] | None = None, rate: float | None = None
) -> list[Block]:
    """x (n, c, *size): curves of signals, small images, the middle frame of clips; without bounds, a heat map."""
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
    unit = scaled(values, (float(values.min()), float(values.max())) if bounds is None else bounds)
    colours = matplotlib.colormaps["magma"](unit[0])[..., :3] if bounds is None else to_colours(unit)
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    times = SIDE / max(picture.size)
    way = Image.Resampling.NEAREST if times > 1 else Image.Resampling.LANCZOS
    return image_address(
        picture.resize((max(1, round(picture.width * times)), max(1, round(picture.height * times))), way)
    )


def maps_html(facts: Mapping[str, str], maps: Tensor, names: Sequence[str]) -> str:
    """Facts, and maps (n, *size) as heat maps."""
    return blocks_html([Facts(facts), *thumbnails(maps[:SAMPLES, None], names)])
