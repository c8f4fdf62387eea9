"""Pictures and clips as data: URLs."""

from __future__ import annotations

import base64
import io
import re

import matplotlib
import numpy as np
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from PIL.Image import Resampling

from rlab.present.layers import SMOOTH_FROM
from rlab.present.style import PAGE
from rlab.redact import redact
from rlab.stats import Floats

_LEFT_OUT = re.compile(r'<(metadata|defs)>.*?</\1>| (id|clip-path)="[^"]*"|font-family: [^;"]*;?', re.DOTALL)
_COORDINATES, _DIGITS = re.compile(r' d="[^"]*"'), re.compile(r"(\.\d)\d+")


def address(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def opened(src: str) -> Image.Image:
    """The picture in a data: URL."""
    return Image.open(io.BytesIO(base64.b64decode(src.partition(",")[2])))


def figure_png(figure: Figure, dpi: float | None = None) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi or figure.dpi)
    return content.getvalue()


def figure_svg(figure: Figure, about: str) -> Markup:
    """The figure as an element of a page, in the page's fonts and colours; `about` describes it.

    Without ids, which would have to differ from those of other figures, so nothing is clipped.
    """
    content = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rlab"}):  # the same ids every time
        figure.savefig(content, format="svg", transparent=True)
    svg = content.getvalue()
    svg = _LEFT_OUT.sub("", svg[svg.index("<g ") :])
    svg = _COORDINATES.sub(lambda match: _DIGITS.sub(r"\1", match[0]).replace("\n", "").replace(" L ", " "), svg)
    for colour, name in PAGE.items():
        svg = svg.replace(colour, f"var(--{name})")
    wide, high = (72 * side for side in figure.get_size_inches())
    head = f'<svg viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}" role="img" aria-label="{escape(about)}">'
    return Markup(redact(head + svg))


def to_image(colours: Floats | NDArray[np.float32], side: int = 0, most: int | None = None) -> Image.Image:
    """Colours (h, w, 3) in [0, 1] as a picture: enlarged by a whole number to about `side` pixels, or reduced to `most`."""
    picture = Image.fromarray((colours * 255).round().astype(np.uint8))
    longest = max(picture.size)
    times = most / longest if most and longest > most else max(1, round(side / longest))
    width, height = (max(1, round(length * times)) for length in picture.size)
    smooth = times < 1 or min(picture.size) >= SMOOTH_FROM
    return picture.resize((width, height), Resampling.LANCZOS if smooth else Resampling.NEAREST)


def image_address(image: Image.Image, lossy: bool = False) -> str:
    """A PNG, or if `lossy` a JPEG (WebP with transparency) of about an eighth of the size."""
    content, clear = io.BytesIO(), image.mode == "RGBA"
    if lossy:
        image.save(content, format="webp" if clear else "jpeg", quality=82, **({"method": 0} if clear else {}))
        return address(content.getvalue(), "image/webp" if clear else "image/jpeg")
    image.save(content, format="png", optimize=True)
    return address(content.getvalue())
