"""Read arrays from .npy and .npz files after checking their headers against the file; never unpickle."""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import free_bytes
from rlab.errors import DataError, InputError
from rlab.storage.outside import is_text, regular, short

Array = NDArray[np.generic]
HELD = 2**26  # bytes; larger arrays stay in their file
_KINDS = "biufUS"  # booleans, integers, floats and text


def read_npy(path: Path) -> Array:
    """Read an array from an .npy file."""
    size = regular(path)
    with _reading(path, ".npy"), path.open("rb") as file:
        return _read(file, size, path.name)


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in an .npz file."""
    with _zipped(path) as file:
        return [info.filename.removesuffix(".npy") for info in file.infolist()]


def read_npz(path: Path, names: Container[str | None] | None = None) -> dict[str, Array]:
    """Read the arrays of an .npz file, or only those with these names."""
    arrays = {}
    with _zipped(path) as file:
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if names is None or name in names:
                with file.open(info) as member:
                    arrays[name] = _read(member, info.file_size, f"{path.name}, {name}")
    return arrays


@contextmanager
def _zipped(path: Path) -> Iterator[zipfile.ZipFile]:
    regular(path)
    with _reading(path, ".npz"), zipfile.ZipFile(path) as file:
        yield file


@contextmanager
def _reading(path: Path, suffix: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds of errors on broken, encrypted and unknown files
        reason = str(error) or type(error).__name__
        raise DataError(f"cannot read {str(path)!r} as {suffix} ({reason}): expected plain arrays") from error


class StoredArray:
    """An array (n, ...) in a file, whose rows are read on demand."""

    def __init__(self, path: Path, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """`at` is the offset of the first row."""
        self.path, self.at, self.shape, self.dtype = path, at, shape, dtype
        self.width = dtype.itemsize * math.prod(shape[1:])

    def __getitem__(self, rows: Sequence[int]) -> Array:
        """The rows as (rows, ...); consecutive rows are read at once."""
        out = bytearray(len(rows) * self.width)
        with self.path.open("rb") as file:
            at = 0
            while at < len(rows):
                end = at + 1
                while end < len(rows) and rows[end] == rows[end - 1] + 1:
                    end += 1
                file.seek(self.at + rows[at] * self.width)
                with memoryview(out)[at * self.width : end * self.width] as part:
                    if file.readinto(part) < len(part):
                        raise DataError(f"{str(self.path)!r} became shorter while it was in use: restore it")
                at = end
        return np.frombuffer(out, self.dtype).reshape(len(rows), *self.shape[1:])


def open_npy(path: Path) -> Array | StoredArray:
    """Open the array of an .npy file; read it if it is small or stored by columns."""
    size = regular(path)
    with _reading(path, ".npy"), path.open("rb") as file:
        shape, by_column, dtype = _header(file, size, path.name)
        if by_column or size <= HELD:
            return _read(file, size, path.name)
        return StoredArray(path, file.tell(), shape, dtype)


def open_npz(path: Path, name: str) -> Array | StoredArray:
    """Like `open_npy`, for one array of an .npz file; a compressed array is read, too."""
    with _zipped(path) as archive:
        info = next(info for info in archive.infolist() if info.filename.removesuffix(".npy") == name)
        with archive.open(info) as member:
            shape, by_column, dtype = _header(member, info.file_size, f"{path.name}, {name}")
            if by_column or info.file_size <= HELD or info.compress_type != zipfile.ZIP_STORED:
                return _read(member, info.file_size, f"{path.name}, {name}")
            at = member.tell()
    with path.open("rb") as file:
        file.seek(info.header_offset)
        local = file.read(30)
    start = info.header_offset + len(local) + sum(struct.unpack("<HH", local[26:30]))
    return StoredArray(path, start + at, shape, dtype)


def _header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether stored by columns, and type of an array of plain values that fits into `size` bytes."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read_header: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings(action="ignore"):  # about headers written by Python 2
        shape, by_column, dtype = read_header(file)
    if dtype.kind not in _KINDS or not dtype.itemsize:
        content = "Python objects, which are pickled" if dtype.hasobject else f"values of type {dtype}"
        raise DataError(f"expected plain arrays of numbers or text in {where!r}, got {content}")
    if any(length < 0 for length in shape) or dtype.itemsize * math.prod(shape) > size - file.tell():
        raise DataError(f"the header of {where!r} declares shape {short(shape)}, but the file is too short for it")
    return shape, by_column, dtype


def _read(file: IO[bytes], size: int, where: str) -> Array:
    """Read one array from a file of `size` bytes after checking its header."""
    file.seek(0)
    shape, _, dtype = _header(file, size, where)
    need, free = dtype.itemsize * math.prod(shape), free_bytes()
    if free is not None and need > free:
        memory = f"{need / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free"
        raise DataError(f"the array in {where!r} needs {memory}: save fewer samples, or with np.savez, uncompressed")
    file.seek(0)
    with warnings.catch_warnings(action="ignore"):
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def texts(array: Array, what: str) -> list[str]:
    """Convert an array (n,) of names or numbers to strings."""
    if array.ndim != 1:
        raise DataError(f"expected {what} as one list, got an array of shape {array.shape}")
    try:
        values = [value.decode() if isinstance(value, bytes) else str(value) for value in array.tolist()]
    except ValueError:  # bytes or numbers that are not valid text
        values = ["\ud800"]
    if not all(map(is_text, values)):
        raise DataError(f"expected {what} as UTF-8 text, got something else: save them as str")
    return values
