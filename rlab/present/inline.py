"""Pictures as addresses that hold their own bytes."""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from rlab.present.plots.moving import write_gif
from rlab.present.plots.sample import Sample

_KINDS = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg"}


def address(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def figure_address(figure: Figure, dpi: float | None = None) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi or figure.dpi)
    return address(_palette(content))


def _palette(content: io.BytesIO) -> bytes:
    """256 colours are enough for charts and make a page a third as large."""
    smaller = io.BytesIO()
    Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        smaller, format="png", optimize=True
    )
    return smaller.getvalue()


def image_address(image: Image.Image) -> str:
    content = io.BytesIO()
    image.save(content, format="png", optimize=True)
    return address(content.getvalue())


def file_address(path: Path) -> str:
    return address(path.read_bytes(), _KINDS[path.suffix.lower()])


def moving_address(sample: Sample) -> str:
    """A clip before, after and where, as a GIF, which every browser plays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.gif"
        write_gif(sample, path)
        return file_address(path)
