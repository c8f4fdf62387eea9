"""How inputs travel in a request: as nested lists, .npy, raw bytes, or a PNG, JPEG or WAV file."""

from __future__ import annotations

import base64
import io
import math
import wave
from collections.abc import Callable
from typing import Any

import numpy as np

from rlab.errors import ModelError

Array = np.ndarray[Any, Any]
NPY = "application/x-npy"


def as_npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _picture(unit: Array, form: str, **how: Any) -> bytes:
    """One image (c, h, w) in [0, 1] -> a file of 8 bits per value."""
    from PIL import Image  # slow, and rarely needed

    if unit.ndim != 3 or len(unit) not in (1, 3):
        raise ModelError(f"a {form} file holds an image of 1 or 3 channels, got shape {unit.shape}: use list or npy")
    pixels = np.moveaxis((unit.clip(0, 1) * 255).round().astype(np.uint8), 0, -1)
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if len(unit) == 1 else pixels).save(buffer, form, **how)
    return buffer.getvalue()


def _sound(unit: Array, hertz: int) -> bytes:
    """One signal (c, t) in [0, 1] -> a WAV file of 16 bits per value."""
    if unit.ndim != 2:
        raise ModelError(f"a WAV file holds a signal (channels, values), got shape {unit.shape}: use list or npy")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(len(unit))
        file.setsampwidth(2)
        file.setframerate(hertz)
        file.writeframes(((unit.clip(0, 1) * 2 - 1) * 32767).round().astype("<i2").T.tobytes())
    return buffer.getvalue()


# name -> content type, and the bytes of an input in [0, 1]; `hertz` is the sampling rate of a signal
FILES: dict[str, tuple[str, Callable[[Array, int], bytes]]] = {
    "png": ("image/png", lambda unit, hertz: _picture(unit, "PNG", compress_level=1)),
    "jpeg": ("image/jpeg", lambda unit, hertz: _picture(unit, "JPEG", quality=95, subsampling=0)),
    "wav": ("audio/wav", _sound),
}
# name -> content type, and the bytes of an array as the model takes it
BYTES: dict[str, tuple[str, Callable[[Array], bytes]]] = {
    "npy": (NPY, as_npy),
    "raw": ("application/octet-stream", lambda array: array.tobytes()),
}
# name -> a value in JSON
VALUES: dict[str, Callable[[Array], object]] = {
    "list": lambda array: array.tolist(),
    "flat": lambda array: array.ravel().tolist(),
    "shape": lambda array: list(array.shape),
}
BASE64 = "_base64"
PACKED = tuple(f"{name}{end}" for name in (*FILES, *BYTES) for end in ("", BASE64))
ENCODINGS = (*VALUES, *PACKED)


def content_type(name: str) -> str:
    return (FILES.get(name) or BYTES[name])[0]


def encode(name: str, array: Array, unit: Array, hertz: int) -> object:
    """An input by the name of an encoding: `array` as the model takes it, `unit` the same in [0, 1]."""
    plain = name.removesuffix(BASE64)
    if plain in VALUES:
        return VALUES[plain](array)
    if plain in FILES and not math.isfinite(float(unit.sum())):
        raise ModelError(f"a {plain} file holds values of a known range: pass bounds=(low, high)")
    content = FILES[plain][1](unit, hertz) if plain in FILES else BYTES[plain][1](array)
    return base64.b64encode(content).decode() if name.endswith(BASE64) else content
