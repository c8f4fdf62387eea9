"""Pictures and clips as data: URLs."""

from __future__ import annotations

import base64
import io
from functools import cache
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

_KINDS = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg", ".mp4": "video/mp4"}


def address(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@cache
def size_of(src: str) -> tuple[int, int]:
    """(width, height) of a picture in a data: URL."""
    return Image.open(io.BytesIO(base64.b64decode(src.partition(",")[2]))).size


def figure_address(figure: Figure, dpi: float | None = None) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=dpi or figure.dpi)
    return address(_palette(content))


def _palette(content: io.BytesIO) -> bytes:
    """Reduce to 256 colours: enough for charts, and a third of the size."""
    smaller = io.BytesIO()
    image = Image.open(content).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(smaller, format="png", optimize=True)
    return smaller.getvalue()


def image_address(image: Image.Image, lossy: bool = False) -> str:
    """A PNG, or if `lossy` a JPEG (WebP with transparency) of about an eighth of the size."""
    content, clear = io.BytesIO(), image.mode == "RGBA"
    if lossy:
        image.save(content, format="webp" if clear else "jpeg", quality=82, **({"method": 0} if clear else {}))
        return address(content.getvalue(), "image/webp" if clear else "image/jpeg")
    image.save(content, format="png", optimize=True)
    return address(content.getvalue())


def file_address(path: Path) -> str:
    return address(path.read_bytes(), _KINDS[path.suffix.lower()])
