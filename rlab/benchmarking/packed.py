"""Many samples in one file: tar shards for WebDataset, and Parquet tables for Hugging Face `datasets`.

Images with 1 or 3 channels are stored as PNG, everything else as float32. Shapes are checked against the manifest before
arrays are built.
"""

from __future__ import annotations

import io
import json
import tarfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from rlab.benchmarking.single import Format, Shape, eight_bits, pixels_of, to_png
from rlab.data.fields import to_float
from rlab.data.numpy_files import read_npz
from rlab.errors import DataError, OptionError
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically
from rlab.storage.outside import regular

Array = np.ndarray[Any, np.dtype[Any]]
_NPY = (1, 0)  # version of the header


def from_png(content: bytes, size: tuple[int, ...], channels: int) -> Array:
    """PNG -> (c, h, w) uint8."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if (image.height, image.width) != size or image.mode != ("RGB" if channels == 3 else "L"):
                raise DataError(
                    f"expected a PNG of size {size} with {channels} channels, got {image.size} {image.mode}"
                )
            pixels = np.asarray(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"it contains a damaged PNG: {error}") from error
    return pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)


def to_npy(values: Array) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ascontiguousarray(values, "<f4"), version=_NPY, allow_pickle=False)
    return out.getvalue()


def from_npy(content: bytes, shape: tuple[int, ...]) -> Array:
    file = io.BytesIO(content)
    try:
        np.lib.format.read_magic(file)
        held, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if held != shape or fortran or dtype != np.dtype("<f4"):
            raise DataError(f"expected float32 values of shape {shape}, got {dtype} of {held}")
        return np.frombuffer(content, "<f4", offset=file.tell()).reshape(shape).copy()
    except ValueError as error:
        raise DataError(f"it contains a damaged array: {error}") from error


def write_tar(file: IO[bytes], ending: str, contents: Sequence[bytes], y: Sequence[int], ids: Sequence[str]) -> None:
    """Write KEY.png or KEY.npy, KEY.cls (label) and KEY.json (id) for each sample."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for at, (content, label, name) in enumerate(zip(contents, y, ids, strict=True)):
            members = {ending: content, "cls": str(label).encode(), "json": json.dumps({"id": name}).encode()}
            for suffix, held in members.items():
                info = tarfile.TarInfo(f"{at:06d}.{suffix}")
                info.size = len(held)
                tar.addfile(info, io.BytesIO(held))


def read_tar(path: Path, ending: str) -> tuple[list[bytes], list[int], list[str]]:
    """Read contents, labels and ids as `write_tar` wrote them."""
    regular(path)
    held: dict[str, list[bytes]] = {ending: [], "cls": [], "json": []}
    try:
        with tarfile.open(path, "r:") as tar:
            for info in tar:
                file = tar.extractfile(info) if info.isfile() else None
                suffix = info.name.partition(".")[2]
                if file is None or suffix not in held:
                    raise DataError(f"it contains {info.name!r}, which is not a sample")
                held[suffix].append(file.read())
        labels, ids = [int(label) for label in held["cls"]], [str(json.loads(each)["id"]) for each in held["json"]]
    except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"it is not a tar file of samples: {error}") from error
    return held[ending], labels, ids


def write_parquet(file: IO[bytes], column: str, contents: Sequence[Any], y: Sequence[int], ids: Sequence[str]) -> None:
    """Write the columns `column`, label and id; 'image' holds PNG, with metadata for `datasets`, others nested lists."""
    columns: dict[str, Any] = {"label": pa.array(y, pa.int64()), "id": pa.array(ids, pa.string())}
    if column == "image":
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        cells = [{"bytes": content, "path": None} for content in contents]
        columns = {column: pa.array(cells, kind)} | columns
        whole = {"dtype": "int64", "_type": "Value"}, {"dtype": "string", "_type": "Value"}
        features = {column: {"_type": "Image"}, "label": whole[0], "id": whole[1]}
        table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    else:
        nested = pa.list_(pa.list_(pa.float32()))
        table = pa.table({column: pa.array([values.tolist() for values in contents], nested)} | columns)
    pq.write_table(table, file)


def read_parquet(path: Path, column: str) -> tuple[list[Any], list[int], list[str]]:
    """Read PNG contents or nested lists, labels and ids as `write_parquet` wrote them."""
    regular(path)
    try:
        table = pq.read_table(path, columns=[column, "label", "id"], partitioning=None)
        cells, labels, ids = (table[name].to_pylist() for name in (column, "label", "id"))
        contents = [cell["bytes"] for cell in cells] if column == "image" else cells
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"it is not a Parquet table of samples: {error}") from error
    return contents, labels, ids


class Joined(Format):
    """Many samples in one file: each is an .npy while the benchmark is made, and `pack` joins those of a level."""

    suffix, joined = ".npy", True
    ending: str
    most: int | None = None  # samples per file

    def stored(self, x: Tensor) -> Tensor:
        return x

    def path(self, stem: str, label: int) -> str:
        return f"{stem}{self.suffix}"

    def write(self, path: Path, x: Tensor) -> None:
        write_atomically(path, to_npy(x.numpy()))

    def read(self, path: Path) -> Tensor:
        return torch.from_numpy(np.load(path, allow_pickle=False))

    def digest(self, path: Path) -> str:
        return digest(self.read(path).float(), length=64)

    @abstractmethod
    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        """Write x (n, c, *size), already rounded by `stored`."""

    @abstractmethod
    def unpack(self, path: Path) -> Mapping[str, Any]:
        """Read x, y and ids; raises `DataError` if the file is invalid."""


class Npz(Joined):
    """Exact float32: x, y and ids."""

    name, ending = "npz", ".npz"

    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        np.savez(file, x=x.numpy(), y=np.array(y), ids=np.array(ids))

    def unpack(self, path: Path) -> Mapping[str, Any]:
        return read_npz(path)


class Pictured(Joined):
    """8-bit images as PNG, other data as float32."""

    @property
    def as_png(self) -> bool:
        shape = self.shape
        return shape.kind == "image" and shape.channels in (1, 3) and bounded(shape.bounds)

    def stored(self, x: Tensor) -> Tensor:
        return eight_bits(x, self.shape.bounds) if self.as_png else x

    def _read_png(self, content: bytes) -> Any:
        return to_float(from_png(content, self.shape.size, self.shape.channels), self.shape.bounds).numpy()


class WebDataset(Pictured):
    """Tar shards for the library `webdataset`."""

    name, ending, most = "webdataset", ".tar", 1000

    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        contents = [to_png(pixels_of(each, self.shape.bounds)) if self.as_png else to_npy(each.numpy()) for each in x]
        write_tar(file, "png" if self.as_png else "npy", contents, y, ids)

    def unpack(self, path: Path) -> Mapping[str, Any]:
        contents, y, ids = read_tar(path, "png" if self.as_png else "npy")
        shape = (self.shape.channels, *self.shape.size)
        return {"x": [self._read_png(c) if self.as_png else from_npy(c, shape) for c in contents], "y": y, "ids": ids}


class Parquet(Pictured):
    """A table that Hugging Face `datasets` loads directly: `image` or `signal`, label, id."""

    name, ending = "parquet", ".parquet"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if not self.as_png and shape.kind != "signal":
            raise OptionError(
                f"the format parquet is for signals, and for images with 1 or 3 channels, got {shape.kind}s: choose npz"
            )

    @property
    def column(self) -> str:
        return "image" if self.as_png else "signal"

    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        contents = [to_png(pixels_of(each, self.shape.bounds)) if self.as_png else each.numpy() for each in x]
        write_parquet(file, self.column, contents, y, ids)

    def unpack(self, path: Path) -> Mapping[str, Any]:
        contents, y, ids = read_parquet(path, self.column)
        try:
            x = [self._read_png(cell) if self.as_png else np.array(cell, np.float32) for cell in contents]
        except (TypeError, ValueError) as error:
            raise DataError(f"it contains a damaged sample: {error}") from error
        return {"x": x, "y": y, "ids": ids}
