"""File formats of samples. A format rounds each value on its own, so rounding the bank once makes every rendering exact:

    stored(render(bank, assignment)) == render(stored(bank), assignment)

The attack therefore queries the victim with exactly the values that a reader of the file will see.
"""

from __future__ import annotations

import io
import math
import tempfile
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
from rlab.data.decode import read_clip
from rlab.data.eight_bit import EightBit, to_bytes, to_float
from rlab.data.images import read_images
from rlab.data.source import Unreadable
from rlab.data.wfdb import load_wfdb
from rlab.errors import DataError, FolderError, MissingExtra, OptionError, optional
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import replacing, write_atomically, write_csv
from rlab.storage.names import file_name

FormatName = Literal["png", "npz", "wfdb", "mp4"]
Row = Mapping[str, Any]  # of a benchmark's table
LABELS = "labels.csv"
_FULL = 2**15 - 1  # largest 16-bit value; the lowest one means "missing" in WFDB


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
    gain: float = 1.0  # WFDB: steps per unit; a power of two, which the header stores exactly

    @classmethod
    def of(cls, batch: Batch) -> Shape:
        facts = (batch.bounds, batch.unit, batch.rate, batch.leads)
        return cls(batch.kind, batch.size, int(batch.x.shape[1]), *facts, _gain(batch.x))


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

    def files(self, path: Path) -> tuple[Path, ...]:
        """All files that belong to `path`."""
        return (path,)

    def digest(self, path: Path, x: Tensor) -> str:
        """The sha256 of a sample x (c, *size), or of its files."""
        return digest(*self.files(path), length=64)


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


class Single(Format):
    """One file for each sample, with a table of labels; in folders by class, named by index as loaders expect."""

    suffix: str
    by_class = True

    @abstractmethod
    def write_one(self, path: Path, x: Tensor) -> None:
        """Write x (c, *size); the file is complete or absent."""

    @abstractmethod
    def read_one(self, path: Path) -> Tensor:
        """Read (c, *size)."""

    def write(self, level: Path, rows: Sequence[Row], x: Iterable[Tensor]) -> Iterator[dict[str, Any]]:
        labels = []
        for row, one in zip(rows, x, strict=True):
            stem = file_name(row["id"].rsplit(".", 1)[0]).replace(".", "_").replace("+", "_")  # as WFDB allows
            path = level / (str(row["label"]) if self.by_class else "") / f"{row['place']:05d}_{stem}{self.suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            self.write_one(path, one)
            if not torch.equal(self.read_one(path), one):
                raise FolderError(f"{path} does not hold the values that the model saw: choose another format")
            named = {"file": path.relative_to(level).as_posix()} if self.by_class else {"record": path.stem}
            labels.append({**named, "label": row["label"], "source": row["id"]})
            yield {"file": path, "sha256": self.digest(path, one)}
        write_csv(level / LABELS, labels)

    def read(self, path: Path) -> Mapping[str, Any]:
        if missing := [file.name for file in self.files(path) if not file.is_file()]:
            raise DataError(f"{missing[0]} is missing")
        return {"x": self.read_one(path)[None]}


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
    about = "8-bit PNG files, one folder per class (named by its index), with labels.csv"

    def write_one(self, path: Path, x: Tensor) -> None:
        out, pixels = io.BytesIO(), np.moveaxis(to_bytes(x, self.shape.bounds).numpy(), 0, -1)
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(out, "PNG")
        write_atomically(path, out.getvalue())

    def read_one(self, path: Path) -> Tensor:
        return read_images([path], [str(path)], None, 3 if self.shape.channels == 3 else 1, self.shape.bounds)[0]


class Clip(EightBits):
    """Lossless H.264 in RGB, for any player that supports the 4:4:4 profile."""

    name, suffix, kind = "mp4", ".mp4", "video"
    about = "lossless H.264 (RGB, 4:4:4) in .mp4, one folder per class (named by its index), with labels.csv"

    def write_one(self, path: Path, x: Tensor) -> None:
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
        write_atomically(path, out.getvalue())

    def read_one(self, path: Path) -> Tensor:
        try:
            pixels = read_clip(path, self.shape.size[0])
        except Unreadable as error:
            raise DataError(f"{path} {error}") from error
        return to_float(pixels[: self.shape.channels], self.shape.bounds)


class Wfdb(Single):
    """A 16-bit WFDB record whose gain is a power of two. A header finds its samples by name, so there are no folders by class."""

    name, suffix, kind, by_class = "wfdb", ".dat", "signal", False
    about = "16-bit WFDB records with labels.csv, values in the unit of the source"

    def files(self, path: Path) -> tuple[Path, ...]:
        return (path, path.with_suffix(".hea"))

    def stored(self, x: Tensor) -> Tensor:
        return (x * self.shape.gain).round().clamp(-_FULL, _FULL) / self.shape.gain

    def write_one(self, path: Path, x: Tensor) -> None:
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

    def read_one(self, path: Path) -> Tensor:
        try:
            values = load_wfdb().rdrecord(str(path.with_suffix(""))).p_signal
        except MissingExtra:
            raise
        except Exception as error:  # wfdb raises almost anything on a broken file
            raise DataError(f"cannot read the record {path}: {error or type(error).__name__}") from error
        return torch.from_numpy(np.ascontiguousarray(values.T, np.float32))


_BY_NAME: dict[FormatName, type[Format]] = {"png": Png, "npz": Npz, "wfdb": Wfdb, "mp4": Clip}


def make_format(name: FormatName, shape: Shape) -> Format:
    return _BY_NAME[name](shape)


def usual_format(batch: Samples, from_files: bool) -> FormatName:
    """The usual format for such data: PNG for images; files or arrays for signals and clips, as in the source."""
    by_kind: dict[Kind, FormatName] = {"image": "png", "signal": "wfdb", "video": "mp4"}
    fits = batch.kind != "image" or (batch.shape[0] in (1, 3) and bounded(batch.bounds))
    return by_kind[batch.kind] if fits and (from_files or batch.kind == "image") else "npz"


def _gain(x: Tensor) -> float:
    """A gain with room for eight times the largest value, because distortions exceed the data; larger values saturate."""
    largest = float(x.abs().amax())
    return 2.0 ** math.floor(math.log2(_FULL / (8 * largest))) if largest > 0 else 1.0
