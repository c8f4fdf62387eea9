"""Formats with one file a sample, below a folder of the level. Every format rounds point by point: see `formats`."""

from __future__ import annotations

import io
import math
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rlab.benchmarking.mp4 import encode
from rlab.data.arrays import to_float
from rlab.data.batch import Batch, Kind
from rlab.data.decode import BadClip, read_clip
from rlab.data.images import read_images
from rlab.errors import InputError, MissingExtra
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically

Bounds = tuple[float, float]
_FULL = 2**15 - 1  # of 16 bits; the lowest value means "missing" in WFDB


@dataclass(frozen=True)
class Shape:
    """What a format must know of the data to read a file back as it was."""

    kind: Kind
    size: tuple[int, ...]
    channels: int
    bounds: Bounds
    unit: str = ""
    rate: float | None = None
    leads: tuple[str, ...] = ()  # names of the channels of a signal
    gain: float = 1.0  # WFDB: steps a unit, a power of two, so that no rounding is left in the header

    @classmethod
    def of(cls, batch: Batch) -> Shape:
        facts = (batch.bounds, batch.unit, batch.rate, batch.leads)
        return cls(batch.kind, batch.size, int(batch.x.shape[1]), *facts, _gain(batch.x))


class Format(ABC):
    """One file a sample, below a folder of the level; some join them into one file in the end."""

    name: str
    suffix: str
    joined = False
    kind: Kind | None = None  # of the data it is for; None: any

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        if self.kind not in (None, shape.kind):
            raise InputError(f"the format {self.name} is for {self.kind} data, got {shape.kind} data: choose npz")

    @abstractmethod
    def stored(self, x: Tensor) -> Tensor:
        """(..., c, *size) -> the same as a file gives it back."""

    @abstractmethod
    def write(self, path: Path, x: Tensor) -> None:
        """x (c, *size), which `stored` has been applied to; the file appears whole or not at all."""

    @abstractmethod
    def read(self, path: Path) -> Tensor:
        """(c, *size); raises `InputError` where the file is not valid."""

    def path(self, stem: str, label: int) -> str:
        """Below the level's folder. Class folders are named by index, which loaders take as it is."""
        return f"{label}/{stem}{self.suffix}"

    def files(self, path: Path) -> tuple[Path, ...]:
        """All that `path` consists of."""
        return (path,)

    def digest(self, path: Path) -> str:
        return digest(*self.files(path), length=64)


class EightBits(Format):
    """8 bits a value, for data of 1 or 3 channels with bounds."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if shape.channels not in (1, 3) or not bounded(shape.bounds):
            has = f"{shape.channels} channels in {list(shape.bounds)}"
            raise InputError(f"the format {self.name} is for 1 or 3 channels with bounds, got {has}: choose npz")

    def stored(self, x: Tensor) -> Tensor:
        return eight_bits(x, self.shape.bounds)


class Png(EightBits):
    """PNG, grey or RGB."""

    name, suffix, kind = "png", ".png", "image"

    def write(self, path: Path, x: Tensor) -> None:
        write_atomically(path, to_png(pixels_of(x, self.shape.bounds)))

    def read(self, path: Path) -> Tensor:
        return read_images([path], [str(path)], None, 3 if self.shape.channels == 3 else 1, self.shape.bounds)[0]


class Clip(EightBits):
    """H.264 in RGB without loss, readable by anything that plays mp4's 4:4:4 profile."""

    name, suffix, kind = "mp4", ".mp4", "video"

    def write(self, path: Path, x: Tensor) -> None:
        write_atomically(path, encode(frames_of(x, self.shape.bounds), self.shape.rate or 25.0))

    def read(self, path: Path) -> Tensor:
        try:
            pixels = read_clip(path, self.shape.size[0])
        except BadClip as error:
            raise InputError(f"{path} {error}") from error
        return to_float(pixels[: self.shape.channels], self.shape.bounds)


class Frames(EightBits):
    """A PNG for each frame, exact, in a folder beside an mp4 of the clip that any player shows."""

    name, suffix, kind = "frames", ".mp4", "video"

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path, *(path.with_suffix("") / f"{at:04d}.png" for at in range(self.shape.size[0])))

    def write(self, path: Path, x: Tensor) -> None:
        path.with_suffix("").mkdir(parents=True, exist_ok=True)
        shown, *frames = self.files(path)
        for at, frame in enumerate(frames):
            write_atomically(frame, to_png(pixels_of(x[:, at], self.shape.bounds)))
        write_atomically(shown, encode(frames_of(x, self.shape.bounds), self.shape.rate or 25.0, lossless=False))

    def read(self, path: Path) -> Tensor:
        frames = list(self.files(path)[1:])
        channels: Literal[1, 3] = 3 if self.shape.channels == 3 else 1
        return read_images(frames, list(map(str, frames)), None, channels, self.shape.bounds).transpose(0, 1)


class Wfdb(Format):
    """A WFDB record of 16-bit samples, physical values at a gain that is a power of two; a table of labels beside."""

    name, suffix, kind = "wfdb", ".dat", "signal"

    def path(self, stem: str, label: int) -> str:
        return f"{stem}{self.suffix}"  # records lie flat: a header finds its samples by name

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path, path.with_suffix(".hea"))

    def stored(self, x: Tensor) -> Tensor:
        return (x * self.shape.gain).round().clamp(-_FULL, _FULL) / self.shape.gain

    def write(self, path: Path, x: Tensor) -> None:
        steps = (x.double() * self.shape.gain).round().numpy().T.astype(np.int16)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".", suffix=".part") as beside:
            _wfdb().wrsamp(path.stem, d_signal=np.ascontiguousarray(steps), write_dir=beside, **self._header())
            for file in self.files(path):
                write_atomically(file, (Path(beside) / file.name).read_bytes())

    def _header(self) -> dict[str, Any]:
        shape, count = self.shape, self.shape.channels
        names = list(shape.leads or (f"lead{i}" for i in range(count)))
        each = {"fmt": "16", "adc_gain": shape.gain, "baseline": 0, "units": shape.unit or "NU"}
        return {"fs": shape.rate or 1.0, "sig_name": names, **{key: [value] * count for key, value in each.items()}}

    def read(self, path: Path) -> Tensor:
        try:
            values = _wfdb().rdrecord(str(path.with_suffix(""))).p_signal
        except MissingExtra:
            raise
        except Exception as error:  # what wfdb raises on a broken file can be nearly anything
            raise InputError(f"cannot read the record {path}: {error or type(error).__name__}") from error
        return torch.from_numpy(np.ascontiguousarray(values.T, np.float32))


def to_bytes(x: Tensor, bounds: Bounds) -> Tensor:
    """Values in the bounds -> uint8."""
    return ((x - bounds[0]) / (bounds[1] - bounds[0]) * 255).round().clamp(0, 255).to(torch.uint8)


def eight_bits(x: Tensor, bounds: Bounds) -> Tensor:
    """Through bytes and back. By a table made once, so that every device gives a loader's bits."""
    table = to_float(np.arange(256, dtype=np.uint8), bounds).to(x.device)
    return table[to_bytes(x, bounds).long()]


def to_png(pixels: Any) -> bytes:
    """(h, w) or (h, w, 3), uint8."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def pixels_of(x: Tensor, bounds: Bounds) -> Any:
    """(c, h, w) -> (h, w) or (h, w, 3), uint8."""
    pixels = np.moveaxis(to_bytes(x, bounds).numpy(), 0, -1)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def frames_of(x: Tensor, bounds: Bounds) -> Any:
    """(c, t, h, w) -> (t, h, w, 3), uint8."""
    return np.ascontiguousarray(np.moveaxis(to_bytes(x, bounds).expand(3, *x.shape[1:]).numpy(), 0, -1))


def _gain(x: Tensor) -> float:
    """Leaves room for eight times the largest value, since distortions reach beyond the data; a sensor saturates there."""
    largest = float(x.abs().amax())
    return 2.0 ** math.floor(math.log2(_FULL / (8 * largest))) if largest > 0 else 1.0


def _wfdb() -> Any:
    try:
        import wfdb
    except ImportError as error:
        raise MissingExtra("wfdb", "ecg") from error
    return wfdb
