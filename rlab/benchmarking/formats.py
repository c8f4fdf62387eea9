"""File formats of samples: those of `single`, and those with many samples in one file.

A format rounds each value on its own, so rounding the bank once makes every rendering exact:

    stored(render(bank, assignment)) == render(stored(bank), assignment)

The attack therefore queries the victim with exactly the values that a reader of the file will see.
"""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from torch import Tensor

from rlab.benchmarking.single import Clip, Format, FormatName, Frames, Png, Shape, Single, Wfdb, to_png
from rlab.data.arrays import stored_arrays
from rlab.data.batch import Kind, Samples
from rlab.data.eight_bit import EightBit, to_float
from rlab.errors import DataError, OptionError
from rlab.filters.palette import bounded
from rlab.storage.outside import regular


class Joined(Format):
    """All samples of a level in one file."""

    ending: str

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
        with stored_arrays(path) as stored:
            return dict(stored)


class Parquet(Joined):
    """A table that Hugging Face `datasets` loads directly: `image` (8-bit PNG) or `signal` (nested lists), label, id."""

    name, ending = "parquet", ".parquet"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        if not self.as_png and shape.kind != "signal":
            raise OptionError(f"parquet holds signals, and images of 1 or 3 channels, got {shape.kind}s: choose npz")

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


_BY_NAME: dict[FormatName, type[Single] | type[Joined]] = {
    "png": Png, "npz": Npz, "wfdb": Wfdb, "mp4": Clip, "frames": Frames, "parquet": Parquet,
}  # fmt: skip


def make_format(name: FormatName, shape: Shape) -> Single | Joined:
    return _BY_NAME[name](shape)


def usual_format(batch: Samples, from_files: bool) -> FormatName:
    """The usual format for such data: PNG for images; files or arrays for signals and clips, as in the source."""
    by_kind: dict[Kind, FormatName] = {"image": "png", "signal": "wfdb", "video": "mp4"}
    fits = batch.kind != "image" or (batch.shape[0] in (1, 3) and bounded(batch.bounds))
    return by_kind[batch.kind] if fits and (from_files or batch.kind == "image") else "npz"
