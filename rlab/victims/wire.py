"""The wire format of HTTP models: arrays as JSON or .npy, and the Retry-After header."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Body = Literal["json", "npy"]
NPY = "application/x-npy"


def encode(array: np.ndarray[Any, Any], body: Body) -> bytes:
    """(b, c, *size) -> the body of a request."""
    if body == "json":
        return json.dumps({"inputs": array.tolist()}, separators=(",", ":"), allow_nan=False).encode()
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def seconds_until(after: str | None) -> float:
    """A Retry-After header, seconds or a date -> seconds from now; 0 if it is missing or unreadable."""
    if after is None:
        return 0.0
    try:
        if after.strip().isdecimal():
            return float(after)
        return max(0.0, (parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def decode(content: bytes, kind: str, rows: int, labels: bool = False) -> Tensor:
    """The body of an answer -> (rows, k), or (rows,) if `labels`; ValueError explains what is wrong."""
    array = _from_json(content, labels) if "json" in kind else _from_npy(content)
    if array.ndim not in ((1, 2) if labels else (2,)) or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        return torch.from_numpy(array.astype(np.float32))


def _from_json(content: bytes, labels: bool) -> np.ndarray[Any, Any]:
    try:
        rows = json.loads(content)["outputs"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise ValueError(f'expected {{"outputs": [[...]]}}, got {_glimpse(content)}') from None
    if labels and isinstance(rows, list) and not any(isinstance(row, list) for row in rows):
        rows = [[row] for row in rows]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError("expected outputs to be a list of lists; for class numbers, pass outputs='labels'")
    if not all(value is None or type(value) in (int, float) for row in rows for value in row):
        raise ValueError("expected outputs to be numbers")
    if len({len(row) for row in rows}) > 1:
        raise ValueError("expected rows of equal length")
    try:
        return np.array(rows, dtype=np.float64)
    except OverflowError:
        raise ValueError("expected numbers that fit into a float") from None


def _from_npy(content: bytes) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # arbitrary bytes can raise anything
        raise ValueError(f"expected JSON or .npy, got {_glimpse(content)}") from None
    if array.dtype.kind not in "fiu":
        raise ValueError("expected an array of numbers")
    return array


def _glimpse(content: bytes) -> str:
    return repr(content[:60].decode("utf-8", "replace")) if content else "nothing"
