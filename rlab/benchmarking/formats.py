"""File formats of samples: those of `single`, and those with many samples in one file.

A format rounds each value on its own, so rounding the bank once makes every rendering exact:

    stored(render(bank, assignment)) == render(stored(bank), assignment)

The attack therefore queries the victim with exactly the values that a reader of the file will see.
"""

from __future__ import annotations

import io
import json
import tarfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from rlab.benchmarking.single import Clip, Format, Frames, Png, Shape, Wfdb, to_png
from rlab.data.batch import Kind, Samples
from rlab.data.eight_bit import EightBit, to_float
from rlab.data.numpy_files import read_npz
from rlab.errors import DataError, OptionError
from rlab.filters.palette import bounded
from rlab.storage.digest import digest
from rlab.storage.files import write_atomically
from rlab.storage.ledger import PARTS
from rlab.storage.outside import regular

Array = np.ndarray[Any, np.dtype[Any]]
_NPY = (1, 0)  # version of the header


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


class Joined(Format):
    """Many samples in one file: each is an .npy while the benchmark is made, and `pack` joins those of a level."""

    suffix = ".npy"
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

    def whole(self, part: str) -> PurePosixPath | None:
        """The one file that the level of this part is joined into; None if there may be several, or if it is no part."""
        level = PurePosixPath(part).parent
        if self.most is not None or not level.is_relative_to(PARTS):
            return None
        return PurePosixPath(f"{level.relative_to(PARTS)}{self.ending}")

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
    """8-bit images with 1 or 3 channels as PNG, other data as float32."""

    @property
    def as_png(self) -> bool:
        shape = self.shape
        return shape.kind == "image" and shape.channels in (1, 3) and bounded(shape.bounds)

    def stored(self, x: Tensor) -> Tensor:
        return EightBit(self.shape.bounds)(x) if self.as_png else x

    def _from_png(self, content: bytes) -> Any:
        """PNG -> (c, h, w) float32."""
        size, mode = self.shape.size, "RGB" if self.shape.channels == 3 else "L"
        try:
            with Image.open(io.BytesIO(content)) as image:
                if (image.height, image.width) != size or image.mode != mode:
                    raise DataError(f"expected a PNG of {size} in mode {mode}, got {image.size} in {image.mode}")
                pixels = np.asarray(image)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"it contains a damaged PNG: {error}") from error
        return to_float(pixels[None] if mode == "L" else np.moveaxis(pixels, -1, 0), self.shape.bounds).numpy()


class WebDataset(Pictured):
    """Tar shards for the library `webdataset`: KEY.png or KEY.npy, KEY.cls (label) and KEY.json (id) of each sample."""

    name, ending, most = "webdataset", ".tar", 1000

    @property
    def _content(self) -> str:
        return "png" if self.as_png else "npy"

    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for at, (each, label, name) in enumerate(zip(x, y, ids, strict=True)):
                content = to_png(each, self.shape.bounds) if self.as_png else to_npy(each.numpy())
                about = {"cls": str(label).encode(), "json": json.dumps({"id": name}).encode()}
                for suffix, held in ({self._content: content} | about).items():
                    info = tarfile.TarInfo(f"{at:06d}.{suffix}")
                    info.size = len(held)
                    tar.addfile(info, io.BytesIO(held))

    def unpack(self, path: Path) -> Mapping[str, Any]:
        regular(path)
        held: dict[str, list[bytes]] = {self._content: [], "cls": [], "json": []}
        try:
            with tarfile.open(path, "r:") as tar:
                for info in tar:
                    file = tar.extractfile(info) if info.isfile() else None
                    suffix = info.name.partition(".")[2]
                    if file is None or suffix not in held:
                        raise DataError(f"it contains {info.name!r}, which is not a sample")
                    held[suffix].append(file.read())
            y, ids = [int(label) for label in held["cls"]], [str(json.loads(each)["id"]) for each in held["json"]]
        except (tarfile.TarError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"it is not a tar file of samples: {error}") from error
        shape = (self.shape.channels, *self.shape.size)
        x = [self._from_png(each) if self.as_png else from_npy(each, shape) for each in held[self._content]]
        return {"x": x, "y": y, "ids": ids}


class Parquet(Pictured):
    """A table that Hugging Face `datasets` loads directly: `image` (PNG) or `signal` (nested lists), label, id."""

    name, ending = "parquet", ".parquet"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if not self.as_png and shape.kind != "signal":
            raise OptionError(f"parquet holds signals, and images of 1 or 3 channels, got {shape.kind}s: choose npz")

    def pack(self, file: IO[bytes], x: Tensor, y: Sequence[int], ids: Sequence[str]) -> None:
        columns: dict[str, Any] = {"label": pa.array(y, pa.int64()), "id": pa.array(ids, pa.string())}
        if not self.as_png:
            nested = pa.array(x.tolist(), pa.list_(pa.list_(pa.float32())))
            pq.write_table(pa.table({"signal": nested} | columns), file)
            return
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        cells = pa.array([{"bytes": to_png(each, self.shape.bounds), "path": None} for each in x], kind)
        plain = {name: {"dtype": dtype, "_type": "Value"} for name, dtype in (("label", "int64"), ("id", "string"))}
        features = json.dumps({"info": {"features": {"image": {"_type": "Image"}} | plain}})
        pq.write_table(pa.table({"image": cells} | columns).replace_schema_metadata({"huggingface": features}), file)

    def unpack(self, path: Path) -> Mapping[str, Any]:
        regular(path)
        column = "image" if self.as_png else "signal"
        try:
            table = pq.read_table(path, columns=[column, "label", "id"], partitioning=None)
            cells, y, ids = (table[name].to_pylist() for name in (column, "label", "id"))
            contents = [cell["bytes"] for cell in cells] if self.as_png else cells
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"it is not a Parquet table of samples: {error}") from error
        try:
            x = [self._from_png(cell) if self.as_png else np.array(cell, np.float32) for cell in contents]
        except (TypeError, ValueError) as error:
            raise DataError(f"it contains a damaged sample: {error}") from error
        return {"x": x, "y": y, "ids": ids}


_KINDS: tuple[type[Format], ...] = (Png, Npz, Wfdb, Clip, Frames, WebDataset, Parquet)
_BY_NAME = {kind.name: kind for kind in _KINDS}


def make_format(name: str, shape: Shape) -> Format:
    if name not in _BY_NAME:
        raise OptionError(f"unknown format {name!r}: expected one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name](shape)


def usual_format(batch: Samples, from_files: bool) -> str:
    """The usual format for such data: PNG for images; files or arrays for signals and clips, as in the source."""
    by_kind: dict[Kind, str] = {"image": "png", "signal": "wfdb", "video": "mp4"}
    fits = batch.kind != "image" or (batch.shape[0] in (1, 3) and bounded(batch.bounds))
    return by_kind[batch.kind] if fits and (from_files or batch.kind == "image") else "npz"
