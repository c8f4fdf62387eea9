"""Blocks of a page as the output of a notebook cell: facts, charts and small pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from rlab.present.chart import Chart, Curve
from rlab.present.inline import image_address, to_image
from rlab.present.layers import scaled, to_colours
from rlab.present.page import Block, Charts, Facts, Gallery, Number, Picture, templates

SAMPLES, SIDE = 3, 128  # samples shown; pixels along a small picture


def blocks_html(blocks: Sequence[Block], numbers: Sequence[Number] = ()) -> str:
    """Blocks without the page's script, so nothing is interactive."""
    environment = templates()
    style = environment.get_template("style.css").render().replace(":root", "&").replace("body {", "& {")
    return environment.get_template("notebook.html").render(blocks=blocks, numbers=numbers, style=style)


def thumbnails(
    x: Tensor, names: Sequence[str], bounds: tuple[float, float], rate: float | None = None, side: int = SIDE
) -> list[Block]:
    """x (n, c, *size): curves of signals, small images, the middle frame of clips."""
    if x.dim() == 3:
        time, unit = np.arange(x.shape[2]) / (rate or 1.0), "s" if rate else "point"
        curves = [[Curve(f"{k + 1}", time, lead.numpy()) for k, lead in enumerate(leads)] for leads in x]
        return [Charts([Chart(name, each, unit) for name, each in zip(names, curves, strict=False)])]
    frames = x if x.dim() == 4 else x[:, :, x.shape[2] // 2]
    small = [image_address(to_image(to_colours(scaled(frame.numpy(), bounds)), side, side)) for frame in frames]
    return [Gallery([Picture(each, name, caption=name) for name, each in zip(names, small, strict=False)], 6)]


def data_html(
    facts: Mapping[str, str], x: Tensor, names: Sequence[str], bounds: tuple[float, float], rate: float | None
) -> str:
    """Facts about data, and the first of its samples x (n, c, *size)."""
    return blocks_html([Facts(facts), *thumbnails(x[:SAMPLES], names, bounds, rate)])
