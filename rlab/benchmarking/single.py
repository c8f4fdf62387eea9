"""Formats with one file per sample. Every format rounds each value on its own: see `formats`."""

from __future__ import annotations

import io
import math
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rlab.data.batch import Batch, Kind
from rlab.data.decode import read_clip
from rlab.data.eight_bit import EightBit, to_bytes, to_float
from rlab.data.images import read_images
from rlab.data.source import Unreadable
from rlab.data.wfdb import load_wfdb
from rlab.errors import DataError, MissingExtra, OptionError, optional
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically

Bounds = tuple[float, float]
FormatName = Literal["png", "npz", "wfdb", "mp4", "frames", "parquet"]
_FULL = 2**15 - 1  # largest 16-bit value; the lowest one means "missing" in WFDB


@dataclass(frozen=True)
class Shape:
    """What a format needs to know about the data to read a file back exactly."""

    kind: Kind
    size: tuple[int, ...]
    channels: int
    bounds: Bounds
    unit: str = ""
    rate: float | None = None
    leads: tuple[str, ...] = ()  # names of the channels of a signal
    gain: float = 1.0  # WFDB: steps per unit; a power of two, which the header stores exactly

    @classmethod
    def of(cls, batch: Batch) -> Shape:
        facts = (batch.bounds, batch.unit, batch.rate, batch.leads)
        return cls(batch.kind, batch.size, int(batch.x.shape[1]), *facts, _gain(batch.x))


class Format(ABC):
    """How samples are stored: one file per sample, or one for all samples of a level (`formats.Joined`)."""

    name: FormatName
    kind: Kind | None = None  # of data; None: any

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        if self.kind not in (None, shape.kind):
            raise OptionError(f"the format {self.name} is for {self.kind} data, got {shape.kind} data: choose npz")

    def stored(self, x: Tensor) -> Tensor:
        """Round (..., c, *size) as a file does."""
        return x

    def files(self, path: Path) -> tuple[Path, ...]:
        """All files that belong to `path`."""
        return (path,)


class Single(Format):
    """One file per sample, in the folder of its level."""

    suffix: str

    @abstractmethod
    def write(self, path: Path, x: Tensor) -> None:
        """Write x (c, *size), already rounded by `stored`; the file is complete or absent."""

    @abstractmethod
    def read(self, path: Path) -> Tensor:
        """Read (c, *size); raises `DataError` if the file is invalid."""

    def path(self, stem: str, label: int) -> str:
        """The path within the level's folder; class folders are named by index, as loaders expect."""
        return f"{label}/{stem}{self.suffix}"

    def digest(self, path: Path) -> str:
        return digest(*self.files(path), length=64)


class EightBits(Single):
    """8 bits per value, for bounded data with 1 or 3 channels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if shape.channels not in (1, 3) or not bounded(shape.bounds):
            has = f"{shape.channels} channels in {list(shape.bounds)}"
            raise OptionError(f"the format {self.name} is for bounded data with 1 or 3 channels, got {has}: choose npz")

    def stored(self, x: Tensor) -> Tensor:
        return EightBit(self.shape.bounds)(x)


class Png(EightBits):
    """PNG, grey or RGB."""

    name, suffix, kind = "png", ".png", "image"

    def write(self, path: Path, x: Tensor) -> None:
        write_atomically(path, to_png(x, self.shape.bounds))

    def read(self, path: Path) -> Tensor:
        return read_images([path], [str(path)], None, 3 if self.shape.channels == 3 else 1, self.shape.bounds)[0]


class Clip(EightBits):
    """Lossless H.264 in RGB, for any player that supports the 4:4:4 profile."""

    name, suffix, kind = "mp4", ".mp4", "video"

    def write(self, path: Path, x: Tensor) -> None:
        write_atomically(path, encode(x, self.shape))

    def read(self, path: Path) -> Tensor:
        try:
            pixels = read_clip(path, self.shape.size[0])
        except Unreadable as error:
            raise DataError(f"{path} {error}") from error
        return to_float(pixels[: self.shape.channels], self.shape.bounds)


class Frames(EightBits):
    """A folder with an exact PNG per frame, beside an mp4 of the clip for any player."""

    name, suffix, kind = "frames", ".mp4", "video"

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path, *(path.with_suffix("") / f"{at:04d}.png" for at in range(self.shape.size[0])))

    def write(self, path: Path, x: Tensor) -> None:
        path.with_suffix("").mkdir(parents=True, exist_ok=True)
        shown, *frames = self.files(path)
        for at, frame in enumerate(frames):
            write_atomically(frame, to_png(x[:, at], self.shape.bounds))
        write_atomically(shown, encode(x, self.shape, lossless=False))

    def read(self, path: Path) -> Tensor:
        frames = list(self.files(path)[1:])
        channels: Literal[1, 3] = 3 if self.shape.channels == 3 else 1
        return read_images(frames, list(map(str, frames)), None, channels, self.shape.bounds).transpose(0, 1)


class Wfdb(Single):
    """A 16-bit WFDB record whose gain is a power of two, with a table of labels."""

    name, suffix, kind = "wfdb", ".dat", "signal"

    def path(self, stem: str, label: int) -> str:
        return f"{stem}{self.suffix}"  # no class folders: a header finds its samples by name

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path, path.with_suffix(".hea"))

    def stored(self, x: Tensor) -> Tensor:
        return (x * self.shape.gain).round().clamp(-_FULL, _FULL) / self.shape.gain

    def write(self, path: Path, x: Tensor) -> None:
        steps = (x.double() * self.shape.gain).round().numpy().T.astype(np.int16)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".", suffix=".part") as beside:
            load_wfdb().wrsamp(path.stem, d_signal=np.ascontiguousarray(steps), write_dir=beside, **self._header())
            for file in self.files(path):
                write_atomically(file, (Path(beside) / file.name).read_bytes())

    def _header(self) -> dict[str, Any]:
        shape, count = self.shape, self.shape.channels
        names = list(shape.leads or (f"lead{i}" for i in range(count)))
        each = {"fmt": "16", "adc_gain": shape.gain, "baseline": 0, "units": shape.unit or "NU"}
        return {"fs": shape.rate or 1.0, "sig_name": names, **{key: [value] * count for key, value in each.items()}}

    def read(self, path: Path) -> Tensor:
        try:
            values = load_wfdb().rdrecord(str(path.with_suffix(""))).p_signal
        except MissingExtra:
            raise
        except Exception as error:  # wfdb raises almost anything on a broken file
            raise DataError(f"cannot read the record {path}: {error or type(error).__name__}") from error
        return torch.from_numpy(np.ascontiguousarray(values.T, np.float32))


def encode(x: Tensor, shape: Shape, lossless: bool = True) -> bytes:
    """(c, t, h, w) -> H.264: lossless RGB, or the lossy kind that every player and browser shows."""
    av = optional("av", MissingExtra("av", "video"))
    out, preset = io.BytesIO(), {"preset": "ultrafast", "threads": "1"}
    frames = np.ascontiguousarray(np.moveaxis(to_bytes(x, shape.bounds).expand(3, *x.shape[1:]).numpy(), 0, -1))
    codec, pixels, options = ("libx264rgb", "rgb24", {"qp": "0"}) if lossless else ("libx264", "yuv420p", {"crf": "18"})
    if not lossless:  # colours are stored for blocks of 2 x 2 pixels
        frames = np.pad(frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge")
    with av.open(out, "w", format="mp4") as container:
        speed = Fraction(shape.rate or 25.0).limit_denominator(1000)
        stream: Any = container.add_stream(codec, rate=speed, options=options | preset)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return out.getvalue()


def to_png(x: Tensor, bounds: Bounds) -> bytes:
    """(c, h, w) -> PNG, grey if there is one channel."""
    out, pixels = io.BytesIO(), np.moveaxis(to_bytes(x, bounds).numpy(), 0, -1)
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(out, "PNG")
    return out.getvalue()


def _gain(x: Tensor) -> float:
    """A gain with room for eight times the largest value, because distortions exceed the data; larger values saturate."""
    largest = float(x.abs().amax())
    return 2.0 ** math.floor(math.log2(_FULL / (8 * largest))) if largest > 0 else 1.0
