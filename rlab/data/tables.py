"""Text tables and .npy files, read with a sentence for everything that can be wrong with them. Nothing is unpickled."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlab.errors import InputError


def read_cells(path: Path) -> list[tuple[str, ...]]:
    """The cells of a comma-, tab- or semicolon-separated file without blank lines, every row as long as the first."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}: check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {str(path)!r} as text ({error}): expected comma-separated lines") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{str(path)!r} is empty: expected one line a sample")
    delimiter = max(",\t;", key=lines[0].count)
    rows = [tuple(cell.strip() for cell in row) for row in csv.reader(lines, delimiter=delimiter)]
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"line {number} of {path.name!r} has {len(row)} cells where the first has {len(rows[0])}: "
                f"expected as many in every line"
            )
    return rows


def read_npy(path: Path) -> NDArray[np.generic]:
    """An array from .npy; one that holds pickled objects is refused."""
    try:
        array: NDArray[np.generic] = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}: check the path") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"cannot read {str(path)!r} as .npy ({error}): expected an array of numbers, not objects"
        ) from error
    if not array.ndim:
        raise InputError(f"expected an array with one row a sample in {path.name!r}, got a single value")
    return array
