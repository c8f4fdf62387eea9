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

from rlab.errors import VictimError
from rlab.victims.answers import TOLERANCE
from rlab.victims.failures import Unanswered
from rlab.victims.paths import find
from rlab.victims.template import Template

_LONGEST_WAIT = 60.0  # seconds; if a server asks for more, the run stops
_TRANSIENT = (408, 425, 429)  # statuses below 500 after which another attempt may help
_MAGIC = b"\x93NUMPY"
_NUMBERED = re.compile(r"(?:LABEL_)?(\d{1,9})")  # class numbers as text
_CLASS = ("label", "class", "class_name", "prediction")  # keys of a class and of its score in the answers of servers
_SCORE = ("score", "confidence", "probability")
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


def check_status(status: int, headers: Mapping[str, str], name: str, shown: str) -> None:
    """Raise `Unanswered` if another attempt may help; refuse a server that wants a long pause."""
    if status not in _TRANSIENT and status < 500:
        return
    wait = seconds_until(headers.get("retry-after"))
    if wait > _LONGEST_WAIT:
        raise VictimError(f"the model at {name} asks for a pause of {wait:.0f} s (status {status}): lower the rate")
    raise Unanswered(f"the model at {name} answered with status {status}", shown, wait)


def glimpse(content: bytes | str, most: int = 160) -> str:
    """The beginning of a body, printable and without long lists of numbers."""
    text = content[:20_000].decode("utf-8", "replace") if isinstance(content, bytes) else content
    short = _LONG.sub("[…", "".join(c if c.isprintable() else " " for c in text)).strip()
    return f"{short[: most - 1]}…" if len(short) > most else short or "nothing"


def decode(content: bytes, template: Template, rows: int, labels: bool, multilabel: bool = False) -> Tensor:
    """The body of an answer -> scores (rows, k), or class numbers (rows,) if it names classes without scores.

    If `labels` are wanted, plain numbers are class numbers. ValueError explains what is wrong."""
    if content.startswith(_MAGIC):
        array = _from_npy(content)
    else:
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            raise Unreadable(f"expected JSON or .npy, got {glimpse(content, 60)!r}") from None
        try:
            array = _as_array(_rows(answer, template, rows, labels, multilabel))
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    if array.ndim not in (1, 2) or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        return torch.from_numpy(array.astype(np.float32))


def _rows(answer: object, template: Template, rows: int, labels: bool, multilabel: bool) -> list[object]:
    """What the answer holds for each input: a list of scores, or a class number."""
    found = _listed(answer, template, rows) if template.many else [answer]
    if template.shape is not None:
        found = _reshaped(found, find(answer, template.filled(template.shape)))
    if not isinstance(found, list):
        raise ValueError(f"expected a list at {template.answers}, got {type(found).__name__}")
    if len(found) != rows:
        advice = ": if the server takes one input per request, pass chunk=1 (-M chunk=1)" * (len(found) == 1)
        raise ValueError(f"expected {rows} rows of scores, got {len(found)}{advice}")
    return [_row(item, template, labels, multilabel) for item in found]


def _listed(answer: object, template: Template, rows: int) -> object:
    """The list with an item per input: at its path, or the answer itself if it is a list or names a class."""
    try:
        found = find(answer, template.filled(template.answers))
    except KeyError:
        if not isinstance(answer, list) and not _names_class(answer):
            raise
        found = answer
    ranked = rows == 1 and isinstance(found, list) and len(found) > 1 and all(map(_names_class, found))
    return [found] if ranked or _names_class(found) else found


def _names_class(item: object) -> bool:
    """Whether an item is an object such as {"label": "cat", "score": 0.9}, or one without a score."""
    if not isinstance(item, Mapping):
        return False
    label = _first(item, _CLASS)
    return isinstance(label, str) or (type(label) is int and _first(item, _SCORE) is not None)


def _first(item: Mapping[str, object], keys: Sequence[str]) -> object:
    return next((item[key] for key in keys if key in item), None)


def _reshaped(found: object, shape: object) -> object:
    """A flat list as nested ones; a nested list stays as it is."""
    if not isinstance(found, list) or not isinstance(shape, list) or (found and isinstance(found[0], list)):
        return found
    try:
        return np.array(found, dtype=object).reshape(shape).tolist()
    except (TypeError, ValueError):
        raise ValueError(f"expected answers of shape {shape}, got {len(found)} values") from None


def _row(item: object, template: Template, wanted: bool, multilabel: bool) -> object:
    scores = None if template.scores is None else find(item, template.filled(template.scores))
    labels = None if template.labels is None else find(item, template.filled(template.labels))
    if labels is None:
        labels, scores = _named(scores, template)
    elif isinstance(scores, Mapping):
        labels, scores = list(scores), list(scores.values())
    if labels is None:
        if type(scores) in (int, float) and not wanted:
            advice = "pass outputs='labels' and their number (-M outputs=labels -M classes=10)"
            raise ValueError(f"expected a list of scores for each input; for class numbers, {advice}")
        return scores
    if scores is None:
        return _class_of(labels, template)
    if not isinstance(labels, list) or not isinstance(scores, list) or len(labels) != len(scores):
        raise ValueError("expected as many class names as scores")
    return _by_class(labels, scores, template, multilabel)


def _named(part: object, template: Template) -> tuple[object, object]:
    """Classes and their scores, one class without a score, or None and the part itself if it names no classes."""
    while isinstance(part, list) and len(part) == 1 and isinstance(part[0], list | str):
        part = part[0]
    pairs = part if isinstance(part, list) else [part]
    if pairs and all(map(_names_class, pairs)):
        labels, scores = (
            [_first(pair, keys) for pair in pairs if isinstance(pair, Mapping)] for keys in (_CLASS, _SCORE)
        )
        return (labels[0], None) if len(labels) == 1 and scores == [None] else (labels, scores)
    if isinstance(part, Mapping):
        return list(part), list(part.values())
    return (part, None) if isinstance(part, str) or (type(part) is int and template.classes) else (None, part)


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
    if not template.logarithms and rest > max(sums.values()) + TOLERANCE:
        named = f"the answer gives its classes at most {max(sums.values()):.4g}, and each of {count - len(sums)} others {rest:.4g}"
        raise ValueError(f"{named}: list all classes of the model, or pass multilabel=True (-M multilabel=true)")
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
    numbered = not template.asks and not any(name.isdigit() for name in template.classes)
    if numbered and text not in places and (match := _NUMBERED.fullmatch(text)):
        return int(match[1])
    first = re.match(r"\W*(\w+)", text) if template.asks else None
    words = (text, text.casefold(), text.strip(".:;,!\"' ").casefold(), first[1].casefold() if first else text)
    return next((places[word] for word in words if word in places), None)


def _unknown(label: object, template: Template) -> str:
    count, name = len(template.classes), repr(str(label)[:60])
    what = f"the class {name}, which is not among the {count} classes" if count else f"classes such as {name}"
    return f"the answer names {what}: list all of the model's in order, names=[...] (-M names=[...])"


def _as_array(rows: Sequence[Any]) -> np.ndarray[Any, Any]:
    if rows and all(type(row) in (int, float) for row in rows):
        return np.array(rows, dtype=np.float64)
    if not all(isinstance(row, list) for row in rows):
        raise ValueError("expected a list of scores for each input")
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
