"""File formats of samples. A format rounds each value on its own, so rounding the bank once makes every rendering exact:

    stored(render(bank, assignment)) == render(stored(bank), assignment)

The attack therefore queries the victim with exactly the values that a reader of the file will see.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rlab.data.arrays import stored_arrays
from rlab.data.batch import Batch, Kind, Samples
from rlab.data.clips import read_clip
from rlab.data.eight_bit import EightBit, to_bytes, to_float
from rlab.data.images import read_image
from rlab.data.source import Unreadable
from rlab.errors import DataError, FolderError, MissingExtra, OptionError, optional
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import replacing, write_atomically, write_csv
from rlab.storage.names import file_name

FormatName = Literal["png", "npz", "mp4"]
Row = Mapping[str, Any]  # of a benchmark's table
LABELS = "labels.csv"


@dataclass(frozen=True)
class Shape:
    """What a format needs to know about the data to read a file back exactly."""

    kind: Kind
    size: tuple[int, ...]
    channels: int
    bounds: tuple[float, float]
    unit: str = ""
    rate: float | None = None
    leads: tuple[str, ...] = ()  # names of the channels of a signal

    @classmethod
    def of(cls, batch: Batch) -> Shape:
        return cls(batch.kind, batch.size, int(batch.x.shape[1]), batch.bounds, batch.unit, batch.rate, batch.leads)


class Format(ABC):
    """How the samples of a level are stored."""

    name: FormatName
    about: str  # what the files are
    kind: Kind | None = None  # of data; None: any

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        if self.kind not in (None, shape.kind):
            raise OptionError(f"the format {self.name} is for {self.kind} data, got {shape.kind} data: choose npz")

    def stored(self, x: Tensor) -> Tensor:
        """Round (..., c, *size) as a file does."""
        return x

    @abstractmethod
    def write(self, level: Path, rows: Sequence[Row], x: Iterable[Tensor]) -> Iterator[dict[str, Any]]:
        """Write the samples x (c, *size) each, already rounded by `stored`; yield the columns that describe their files.

        `level` is the path of the samples, without an ending.
        """

    @abstractmethod
    def read(self, path: Path) -> Mapping[str, Any]:
        """Read x (n, c, *size), with y and ids if the file holds several samples; raises `DataError` if it is invalid."""

    def digest(self, path: Path, x: Tensor) -> str:
        """The sha256 of a sample x (c, *size), or of its file."""
        return digest(path, length=64)


class Npz(Format):
    """Exact float32: one file for each level, with x, y and ids."""

    name, about = "npz", "one .npz per level with x (samples, channels, size), y and ids, float32"

    def digest(self, path: Path, x: Tensor) -> str:
        return digest(x.float(), length=64)

    def write(self, level: Path, rows: Sequence[Row], x: Iterable[Tensor]) -> Iterator[dict[str, Any]]:
        path, every = level.with_name(f"{level.name}.npz"), torch.stack([*x])
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            y, ids = ([row[key] for row in rows] for key in ("label", "id"))
            np.savez(file, x=every.numpy(), y=np.array(y), ids=np.array(ids))
        for at, one in enumerate(every):
            yield {"file": path, "row": at, "sha256": self.digest(path, one)}

    def read(self, path: Path) -> Mapping[str, Any]:
        with stored_arrays(path) as stored:
            return dict(stored)


class EightBits(Format):
    """8 bits per value, for bounded data with 1 or 3 channels.

    There is one file for each sample, in folders by class, named by index as loaders expect, and a table of labels.
    """

    suffix: str

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if shape.channels not in (1, 3) or not bounded(shape.bounds):
            has = f"{shape.channels} channels in {list(shape.bounds)}"
            raise OptionError(f"the format {self.name} is for bounded data with 1 or 3 channels, got {has}: choose npz")

    def stored(self, x: Tensor) -> Tensor:
        return EightBit(self.shape.bounds)(x)

    @abstractmethod
    def encode(self, x: Tensor) -> bytes:
        """Encode x (c, *size)."""

    @abstractmethod
    def decode(self, path: Path) -> Tensor:
        """Read (c, *size)."""

    def write(self, level: Path, rows: Sequence[Row], x: Iterable[Tensor]) -> Iterator[dict[str, Any]]:
        labels = []
        for row, one in zip(rows, x, strict=True):
            stem = file_name(row["id"].rsplit(".", 1)[0]).replace(".", "_")
            path = level / str(row["label"]) / f"{row['place']:05d}_{stem}{self.suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, self.encode(one))
            if not torch.equal(self.decode(path), one):
                raise FolderError(f"{path} does not hold the values that the model saw: choose another format")
            labels.append({"file": path.relative_to(level).as_posix(), "label": row["label"], "source": row["id"]})
            yield {"file": path, "sha256": self.digest(path, one)}
        write_csv(level / LABELS, labels)

    def read(self, path: Path) -> Mapping[str, Any]:
        if not path.is_file():
            raise DataError(f"{path.name} is missing")
        return {"x": self.decode(path)[None]}


class Png(EightBits):
    """PNG, grey or RGB."""

    name, suffix, kind = "png", ".png", "image"
    about = "8-bit PNG files, one folder per class (named by its index), with labels.csv"

    def encode(self, x: Tensor) -> bytes:
        out, pixels = io.BytesIO(), np.moveaxis(to_bytes(x, self.shape.bounds).numpy(), 0, -1)
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(out, "PNG")
        return out.getvalue()

    def decode(self, path: Path) -> Tensor:
        return read_image(path, 3 if self.shape.channels == 3 else 1, self.shape.bounds)


class Clip(EightBits):
    """Lossless H.264 in RGB, for any player that supports the 4:4:4 profile."""

    name, suffix, kind = "mp4", ".mp4", "video"
    about = "lossless H.264 (RGB, 4:4:4) in .mp4, one folder per class (named by its index), with labels.csv"

    def encode(self, x: Tensor) -> bytes:
        av = optional("av", MissingExtra("av", "video"))
        out, shape = io.BytesIO(), self.shape
        frames = np.ascontiguousarray(np.moveaxis(to_bytes(x, shape.bounds).expand(3, *x.shape[1:]).numpy(), 0, -1))
        with av.open(out, "w", format="mp4") as container:
            speed = Fraction(shape.rate or 25.0).limit_denominator(1000)
            options = {"qp": "0", "preset": "ultrafast", "threads": "1"}
            stream: Any = container.add_stream("libx264rgb", rate=speed, options=options)
            stream.height, stream.width = frames.shape[1:3]
            stream.pix_fmt = "rgb24"
            for frame in frames:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
        return out.getvalue()

    def decode(self, path: Path) -> Tensor:
        try:
            pixels = read_clip(path, self.shape.size[0])
        except Unreadable as error:
            raise DataError(f"{path} {error}") from error
        return to_float(pixels[: self.shape.channels], self.shape.bounds)


_BY_NAME: dict[FormatName, type[Format]] = {"png": Png, "npz": Npz, "mp4": Clip}


def make_format(name: FormatName, shape: Shape) -> Format:
    return _BY_NAME[name](shape)


def usual_format(batch: Samples, from_files: bool) -> FormatName:
    """The usual format for such data: PNG for images, arrays for signals, and for clips what they came from."""
    if batch.kind == "video":
        return "mp4" if from_files else "npz"
    return "png" if batch.kind == "image" and batch.shape[0] in (1, 3) and bounded(batch.bounds) else "npz"
