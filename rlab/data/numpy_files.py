"""Arrays of .npy and .npz, read after their headers were held against the file: nothing is unpickled, nothing is made up."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rlab.data.fields import free_bytes
from rlab.errors import InputError
from rlab.runs.outside import is_text, regular, short

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


def _read(file: IO[bytes], size: int, where: str) -> Array:
    """One array out of `size` bytes, once its header is seen to describe what is there."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    read_header: Any = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers as Python 2 wrote them
        shape, _, dtype = read_header(file)
    if dtype.kind not in _KINDS or not dtype.itemsize:
        what = "Python objects, which are pickled" if dtype.hasobject else f"values of type {dtype}"
        raise InputError(f"expected plain arrays of numbers or texts in {where!r}, got {what}")
    need, free = dtype.itemsize * math.prod(shape), free_bytes()
    if any(length < 0 for length in shape) or need > size - file.tell():
        raise InputError(f"the header of {where!r} tells of an array of shape {short(shape)}, which is not there")
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
