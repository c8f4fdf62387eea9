"""Read arrays from .npy and .npz files; never unpickle. Large ones stay in their file."""

from __future__ import annotations

import struct
import warnings
import zipfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import free_bytes
from rlab.errors import DataError, InputError
from rlab.storage.outside import is_text, regular

Array = NDArray[np.generic]
HELD = 2**26  # bytes; larger arrays stay in their file until rows of them are read
_KINDS = "biufUS"  # booleans, integers, floats and text


def read_npy(path: Path) -> Array:
    """Read an array from an .npy file."""
    size = regular(path)
    with _reading(path, ".npy"), path.open("rb") as file:
        return _read(file, size, path.name)


def open_npy(path: Path) -> Array:
    """The array of an .npy file; large ones are mapped into memory."""
    if regular(path) <= HELD:
        return read_npy(path)
    with _reading(path, ".npy"):
        return _plain(np.load(path, mmap_mode="r", allow_pickle=False), path.name)


def npz_names(path: Path) -> list[str]:
    """Names of the arrays in an .npz file."""
    with _zipped(path) as archive:
        return [_name(info) for info in archive.infolist()]


def read_npz(path: Path, names: Container[str | None] | None = None) -> dict[str, Array]:
    """Read the arrays of an .npz file, or only those with these names."""
    with _zipped(path) as archive:
        wanted = [info for info in archive.infolist() if names is None or _name(info) in names]
        return {_name(info): _member(archive, info, path) for info in wanted}


def open_npz(path: Path, name: str) -> Array:
    """One array of an .npz file; large ones that are not compressed are mapped into memory."""
    with _zipped(path) as archive, path.open("rb") as file:
        info = next(info for info in archive.infolist() if _name(info) == name)
        if info.file_size <= HELD or info.compress_type != zipfile.ZIP_STORED:
            return _member(archive, info, path)
        file.seek(info.header_offset)
        local = file.read(30)
        file.seek(sum(struct.unpack("<HH", local[26:30])), 1)  # past the member's name and further fields
        header: Any = np.lib.format.read_array_header_1_0
        if np.lib.format.read_magic(file) != (1, 0):
            header = np.lib.format.read_array_header_2_0
        shape, by_column, dtype = header(file)
        return _plain(
            np.memmap(path, dtype, "r", file.tell(), shape, "F" if by_column else "C"), f"{path.name}, {name}"
        )


def _name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Array:
    with archive.open(info) as file:
        return _read(file, info.file_size, f"{path.name}, {_name(info)}")


def _read(file: IO[bytes], size: int, where: str) -> Array:
    """Read an array of up to `size` bytes, if there is room for it."""
    if (free := free_bytes()) is not None and size > free:
        memory = f"{size / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free"
        raise DataError(f"the array in {where!r} needs {memory}: save fewer samples, or with np.savez, uncompressed")
    with warnings.catch_warnings(action="ignore"):  # about headers written by Python 2
        return _plain(np.lib.format.read_array(file, allow_pickle=False), where)


def _plain(array: Array, where: str) -> Array:
    """Refuse arrays that are neither numbers nor text."""
    if array.dtype.kind not in _KINDS or not array.dtype.itemsize:
        raise DataError(f"expected plain arrays of numbers or text in {where!r}, got values of type {array.dtype}")
    return array


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
