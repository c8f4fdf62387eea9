"""Answers of HTTP models: from bytes to scores or class numbers, and the Retry-After header."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.victims.answers import TOLERANCE
from rlab.victims.paths import find
from rlab.victims.template import Template

_MAGIC = b"\x93NUMPY"
_NUMBERED = re.compile(r"(?:LABEL_)?(\d{1,9})")  # class numbers as text
_LONG = re.compile(r"\[[\[\]\s\d.,eE+-]{24,}")  # a list of many numbers


class Unreadable(ValueError):
    """The answer is neither JSON nor .npy, perhaps because it was cut off; another attempt may help."""


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


def glimpse(content: bytes | str, most: int = 160) -> str:
    """The beginning of a body, printable and without long lists of numbers."""
    text = content[:20_000].decode("utf-8", "replace") if isinstance(content, bytes) else content
    short = _LONG.sub("[…", "".join(c if c.isprintable() else " " for c in text)).strip()
    return f"{short[: most - 1]}…" if len(short) > most else short or "nothing"


def decode(content: bytes, template: Template, rows: int, labels: bool, multilabel: bool = False) -> Tensor:
    """The body of an answer -> scores (rows, k), or class numbers (rows,) if `labels` are wanted.

    ValueError explains what is wrong."""
    if content.startswith(_MAGIC):
        array = _from_npy(content)
    else:
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            raise Unreadable(f"expected JSON or .npy, got {glimpse(content, 60)!r}") from None
        try:
            array = _as_array(_rows(answer, template, rows, multilabel), labels)
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    if array.ndim not in ((1, 2) if labels else (2,)) or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        return torch.from_numpy(array.astype(np.float32))


def _rows(answer: object, template: Template, rows: int, multilabel: bool) -> list[object]:
    """What the answer holds for each input: a list of scores, or a class number."""
    found = find(answer, template.filled(template.answers)) if template.many else [answer]
    if template.shape is not None:
        found = _reshaped(found, find(answer, template.filled(template.shape)))
    if not isinstance(found, list):
        raise ValueError(f"expected a list at {template.answers}, got {type(found).__name__}")
    if len(found) != rows:
        raise ValueError(f"expected {rows} rows of scores, got {len(found)}")
    return [_row(item, template, multilabel) for item in found]


def _reshaped(found: object, shape: object) -> object:
    """A flat list as nested ones; a nested list stays as it is."""
    if not isinstance(found, list) or not isinstance(shape, list) or (found and isinstance(found[0], list)):
        return found
    try:
        return np.array(found, dtype=object).reshape(shape).tolist()
    except (TypeError, ValueError):
        raise ValueError(f"expected answers of shape {shape}, got {len(found)} values") from None


def _row(item: object, template: Template, multilabel: bool) -> object:
    scores = None if template.scores is None else find(item, template.filled(template.scores))
    labels = None if template.labels is None else find(item, template.filled(template.labels))
    if isinstance(scores, Mapping):
        labels, scores = list(scores), list(scores.values())
    if labels is None:
        return scores
    if scores is None:
        return _class_of(labels, template)
    if not isinstance(labels, list) or not isinstance(scores, list) or len(labels) != len(scores):
        raise ValueError("expected as many class names as scores")
    return _by_class(labels, scores, template, multilabel)


def _class_of(label: object, template: Template) -> float:
    """The number of a class; NaN for a text that names none of those the request listed."""
    number = _position(label, template, _places(template))
    if number is None and not template.asks:
        raise ValueError(_unknown(label, template))
    return math.nan if number is None else number


def _by_class(labels: list[object], scores: list[object], template: Template, multilabel: bool) -> list[object]:
    """Scores in the order of the classes; classes that are missing share what is left of 1."""
    places = _places(template)
    numbers = [_position(label, template, places) for label in labels]
    if None in numbers and not template.logarithms:
        raise ValueError(_unknown(labels[numbers.index(None)], template))
    count = len(template.classes) or len(set(numbers))
    if not all(type(score) in (int, float) for score in scores):
        raise ValueError("expected scores to be numbers")
    sums: dict[int, float] = {}
    for number, score in zip(numbers, scores, strict=True):
        assert isinstance(score, int | float)
        if number is not None:
            sums[number] = sums.get(number, 0.0) + (math.exp(min(score, 0.0)) if template.logarithms else score)
    if any(number >= count for number in sums):
        raise ValueError(f"the answer has only {count} classes, up to number {max(sums)}: list all in classes=[...]")
    left = 1 - sum(sums.values())
    if len(sums) == count and not template.logarithms:
        return [sums[number] for number in range(count)]
    if not sums:
        return [math.nan] * count
    if left < -TOLERANCE and not multilabel:
        raise ValueError(f"expected probabilities, because classes are missing, got a sum of {1 - left:.4g}")
    rest = 0.0 if multilabel else max(left, 0.0) / max(count - len(sums), 1)
    whole = [sums.get(number, rest) for number in range(count)]
    total = 1.0 if multilabel else sum(whole)  # tokens that name no class have a share, too
    return [score / total for score in whole]


def _places(template: Template) -> dict[str, int]:
    """The numbers of classes by name in any case, and by their keys among the choices; exact names come first."""
    keys = {key.casefold(): number for number, key in enumerate(template.keys())} if template.asks else {}
    names = dict(zip(template.classes, range(len(template.classes)), strict=True))
    return keys | {name.casefold(): number for name, number in names.items()} | names


def _position(label: object, template: Template, places: Mapping[str, int]) -> int | None:
    """The number of a class from its name, its key among the choices, or its number."""
    text = str(label).strip()
    if not template.classes:
        match = _NUMBERED.fullmatch(text)
        return int(match[1]) if match else None
    first = re.match(r"\W*(\w+)", text) if template.asks else None
    words = (text, text.casefold(), text.strip(".:;,!\"' ").casefold(), first[1].casefold() if first else text)
    return next((places[word] for word in words if word in places), None)


def _unknown(label: object, template: Template) -> str:
    if template.classes:
        return f"the answer names the class {str(label)[:60]!r}, which is not among the {len(template.classes)} classes"
    return f"the answer names classes such as {str(label)[:60]!r}: list all in order, names=[...] (-M names=[...])"


def _as_array(rows: Sequence[Any], labels: bool) -> np.ndarray[Any, Any]:
    if labels and not any(isinstance(row, list) for row in rows):
        rows = [[row] for row in rows]
    if not all(isinstance(row, list) for row in rows):
        raise ValueError("expected a list of scores for each input; for class numbers, pass outputs='labels'")
    if not all(value is None or type(value) in (int, float) for row in rows for value in row):
        raise ValueError("expected scores to be numbers")
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
        raise Unreadable(f"expected .npy, got {glimpse(content, 60)!r}") from None
    if array.dtype.kind not in "fiu":
        raise ValueError("expected an array of numbers")
    return array
