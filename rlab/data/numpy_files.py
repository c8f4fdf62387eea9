"""Arrays of .npy and .npz, read after their headers were held against the file: nothing is unpickled, nothing is made up."""

from __future__ import annotations

import math
import os
import shutil
import struct
import tempfile
import warnings
import weakref
import zipfile
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import free_bytes
from rlab.errors import InputError
from rlab.storage.outside import is_text, regular, short

Array = NDArray[np.generic]
_KINDS = "biufUS"  # truth values, whole numbers, floats and texts


def read_npy(path: Path) -> Array:
    """An array from .npy."""
    size = regular(path)
    try:
        with path.open("rb") as file:
            return _read(file, size, path.name)
    except InputError:
        raise
    except Exception as error:  # numpy raises nearly anything on a broken header
        raise _unreadable(path, ".npy", error) from error


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an .npz."""
    with _zipped(path) as file:
        return [info.filename.removesuffix(".npy") for info in file.infolist()]


def read_npz(path: Path, names: Container[str | None] | None = None) -> dict[str, Array]:
    """The arrays of an .npz, or those of these names; others are not looked at."""
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
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except InputError:
        raise
    except Exception as error:  # so do zipfile and its decoders, on broken, encrypted and unknown files
        raise _unreadable(path, ".npz", error) from error


class StoredArray:
    """An array (n, ...) in a file, of which rows are read when they are asked for."""

    def __init__(self, file: Path | IO[bytes], at: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """`file` is opened whenever rows are read, or open as long as the array is there; `at` is where the first row lies."""
        self.file, self.at, self.shape, self.dtype = file, at, shape, dtype
        self.width = dtype.itemsize * math.prod(shape[1:])
        if not isinstance(file, Path):
            weakref.finalize(self, file.close)

    def __getitem__(self, rows: Sequence[int]) -> Array:
        """(rows, ...); rows that lie behind each other are read at once."""
        out = bytearray(len(rows) * self.width)
        with self.file.open("rb") if isinstance(self.file, Path) else nullcontext(self.file) as file:
            at = 0
            while at < len(rows):
                end = at + 1
                while end < len(rows) and rows[end] == rows[end - 1] + 1:
                    end += 1
                with memoryview(out)[at * self.width : end * self.width] as part:
                    _fill(file, part, self.at + rows[at] * self.width)
                at = end
        return np.frombuffer(out, self.dtype).reshape(len(rows), *self.shape[1:])


def _fill(file: IO[bytes], part: memoryview, at: int) -> None:
    done = 0
    while done < len(part):
        got = os.preadv(file.fileno(), [part[done:]], at + done)
        if not got:
            raise InputError(f"{str(file.name)!r} is shorter than it was: put it back as it was")
        done += got


def open_npy(path: Path) -> StoredArray:
    """The array of an .npy, where it lies."""
    size = regular(path)
    try:
        with path.open("rb") as file:
            shape, dtype = _in_rows(file, size, path.name)
            return StoredArray(path, file.tell(), shape, dtype)
    except InputError:
        raise
    except Exception as error:  # numpy raises nearly anything on a broken header
        raise _unreadable(path, ".npy", error) from error


def open_npz(path: Path, name: str) -> StoredArray:
    """One array of an .npz: where it lies in the file, or, where it is compressed, unpacked into a temporary file."""
    with _zipped(path) as archive:
        info = next(info for info in archive.infolist() if info.filename.removesuffix(".npy") == name)
        with archive.open(info) as member:
            shape, dtype = _in_rows(member, info.file_size, f"{path.name}, {name}")
            at = member.tell()
            if info.compress_type != zipfile.ZIP_STORED:
                return StoredArray(_unpacked(member, info.file_size - at, path), 0, shape, dtype)
        with path.open("rb") as file:
            file.seek(info.header_offset)
            local = file.read(30)
        start = info.header_offset + len(local) + sum(struct.unpack("<HH", local[26:30]))
        return StoredArray(path, start + at, shape, dtype)


def _unpacked(member: IO[bytes], size: int, path: Path) -> IO[bytes]:
    if size > (free := shutil.disk_usage(tempfile.gettempdir()).free):
        room = f"needs {size / 1e9:.1f} GB in {tempfile.gettempdir()}, where {free / 1e9:.1f} GB are free"
        raise InputError(f"{path.name!r} is compressed, and {room}: save it with np.savez, or set TMPDIR")
    file = tempfile.TemporaryFile()  # noqa: SIM115 - without a name: the system removes it with this process
    shutil.copyfileobj(member, file, 2**20)
    file.flush()
    return file


def _in_rows(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, by_column, dtype = _header(file, size, where)
    if by_column:
        advice = "save np.ascontiguousarray of it, or pass stream=False"
        raise InputError(f"expected the array in {where!r} to lie row by row, got shape {shape} by columns: {advice}")
    return shape, dtype


def _header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether by columns, and type of an array of plain values, as far as `size` bytes can hold it."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read_header: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers as Python 2 wrote them
        shape, by_column, dtype = read_header(file)
    if dtype.kind not in _KINDS or not dtype.itemsize:
        what = "Python objects, which are pickled" if dtype.hasobject else f"values of type {dtype}"
        raise InputError(f"expected plain arrays of numbers or texts in {where!r}, got {what}")
    if any(length < 0 for length in shape) or dtype.itemsize * math.prod(shape) > size - file.tell():
        raise InputError(f"the header of {where!r} tells of an array of shape {short(shape)}, which is not there")
    return shape, by_column, dtype


def _read(file: IO[bytes], size: int, where: str) -> Array:
    """One array out of `size` bytes, once its header is seen to describe what is there."""
    shape, _, dtype = _header(file, size, where)
    need, free = dtype.itemsize * math.prod(shape), free_bytes()
    if free is not None and need > free:
        memory = f"{need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free"
        raise InputError(f"the array in {where!r} needs {memory}: save fewer samples")
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _unreadable(path: Path, what: str, error: Exception) -> InputError:
    why = str(error) or type(error).__name__
    return InputError(f"cannot read {str(path)!r} as {what} ({why}): expected plain arrays of numbers")


def texts(array: Array, what: str) -> list[str]:
    """An array (n,) of names or numbers as texts."""
    if array.ndim != 1:
        raise InputError(f"expected {what} as one list, got an array of shape {array.shape}")
    try:
        values = [value.decode() if isinstance(value, bytes) else str(value) for value in array.tolist()]
    except ValueError:  # bytes or numbers that stand for no character
        values = ["\ud800"]
    if not all(map(is_text, values)):
        raise InputError(f"expected {what} as UTF-8 texts, got others: save them as str")
    return values
