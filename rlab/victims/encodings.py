"""How inputs travel in a request: as nested lists, .npy, raw bytes, or a PNG, JPEG or WAV file."""

from __future__ import annotations

import base64
import io
import math
import wave
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlab.errors import ModelError

Array = np.ndarray[Any, Any]
BASE64 = "_base64"
FILES = {"png": "image/png", "jpeg": "image/jpeg", "wav": "audio/wav"}  # of one input in [0, 1] -> content type
_TYPES = {**FILES, "npy": "application/x-npy", "raw": "application/octet-stream"}
PACKED = tuple(f"{name}{end}" for name in _TYPES for end in ("", BASE64))
ENCODINGS = ("list", "flat", "shape", *PACKED)
_SAVED: dict[str, dict[str, Any]] = {"png": {"compress_level": 1}, "jpeg": {"quality": 95, "subsampling": 0}}


@dataclass(frozen=True)
class Sent:
    """The body of a request."""

    content: bytes
    kind: str  # content type

    @property
    def is_text(self) -> bool:
        return self.kind in ("application/json", "text/plain")


def content_type(name: str) -> str:
    return _TYPES[name]


def encode(name: str, array: Array, unit: Array, hertz: int) -> object:
    """An input by the name of an encoding: `array` as the model takes it, `unit` the same in [0, 1]."""
    plain, file = name.removesuffix(BASE64), io.BytesIO()
    if plain in FILES and not math.isfinite(float(unit.sum())):
        raise ModelError(f"a {plain} file holds values of a known range: pass bounds=(low, high)")
    match plain:
        case "list":
            return array.tolist()
        case "flat":
            return array.ravel().tolist()
        case "shape":
            return list(array.shape)
        case "raw":
            file.write(array.tobytes())
        case "npy":
            np.save(file, array, allow_pickle=False)
        case "wav":
            _write_sound(file, unit, hertz)
        case _:
            _write_picture(file, unit, plain)
    return base64.b64encode(file.getvalue()).decode() if name.endswith(BASE64) else file.getvalue()


def _write_picture(file: io.BytesIO, unit: Array, form: str) -> None:
    """One image (c, h, w) in [0, 1] with 8 bits per value."""
    from PIL import Image  # slow, and rarely needed

    if unit.ndim != 3 or len(unit) not in (1, 3):
        raise ModelError(f"a {form} file holds an image of 1 or 3 channels, got shape {unit.shape}: use list or npy")
    pixels = np.moveaxis((unit.clip(0, 1) * 255).round().astype(np.uint8), 0, -1)
    Image.fromarray(pixels[..., 0] if len(unit) == 1 else pixels).save(file, form, **_SAVED[form])


def _write_sound(file: io.BytesIO, unit: Array, hertz: int) -> None:
    """One signal (c, t) in [0, 1] with 16 bits per value."""
    if unit.ndim != 2:
        raise ModelError(f"a WAV file holds a signal (channels, values), got shape {unit.shape}: use list or npy")
    with wave.open(file, "wb") as sound:
        sound.setnchannels(len(unit))
        sound.setsampwidth(2)
        sound.setframerate(hertz)
        sound.writeframes(((unit.clip(0, 1) * 2 - 1) * 32767).round().astype("<i2").T.tobytes())
