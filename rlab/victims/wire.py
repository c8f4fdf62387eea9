"""Answers of HTTP models: from bytes to scores or class numbers."""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from pydantic import ConfigDict, TypeAdapter
from torch import Tensor

from rlab.victims.answers import TOLERANCE
from rlab.victims.paths import find
from rlab.victims.template import Template

_MAGIC = b"\x93NUMPY"
_NUMBERED = re.compile(r"(?:LABEL_)?(\d{1,9})")  # class numbers as text
_CLASS = ("label", "class", "class_name", "prediction")  # keys of a class and of its score in the answers of servers
_SCORE = ("score", "confidence", "probability")
_LONG = re.compile(r"\[[\[\]\s\d.,eE+-]{24,}")  # a list of many numbers
_ROWS: TypeAdapter[Any] = TypeAdapter(list[float] | list[list[float | None]], config=ConfigDict(strict=True))


class Unreadable(ValueError):
    """The answer is neither JSON nor .npy, perhaps because it was cut off; another attempt may help."""


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
        array = _as_array(_Reader(template, labels, multilabel).rows(answer, rows))
    if array.ndim not in (1, 2) or len(array) != rows:
        raise ValueError(f"expected {rows} rows of scores, got shape {array.shape}")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite
        return torch.from_numpy(array.astype(np.float32))


def _from_npy(content: bytes) -> np.ndarray[Any, Any]:
    try:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except Exception:  # arbitrary bytes can raise anything
        raise Unreadable(f"expected .npy, got {glimpse(content, 60)!r}") from None
    if array.dtype.kind not in "fiu":
        raise ValueError("expected an array of numbers")
    return array


def _as_array(rows: Sequence[object]) -> np.ndarray[Any, Any]:
    try:
        return np.array(_ROWS.validate_python(rows), dtype=np.float64)
    except (ValueError, OverflowError):
        raise ValueError("expected a list of numbers for each input, all of the same length") from None


@final
@dataclass(frozen=True)
class _Reader:
    """Finds the scores in an answer; `labels` says that plain numbers are class numbers."""

    template: Template
    labels: bool
    multilabel: bool

    def rows(self, answer: object, rows: int) -> list[object]:
        """What the answer holds for each input: a list of scores, or a class number."""
        template = self.template
        found = self._listed(answer, rows) if template.many else [answer]
        if template.shape is not None:
            found = _reshaped(found, find(answer, template.filled(template.shape)))
        if not isinstance(found, list):
            raise ValueError(f"expected a list at {template.answers}, got {type(found).__name__}")
        if len(found) != rows:
            advice = ": if the server takes one input per request, pass chunk=1 (-M chunk=1)" * (len(found) == 1)
            raise ValueError(f"expected {rows} rows of scores, got {len(found)}{advice}")
        return [self._row(item) for item in found]

    def _listed(self, answer: object, rows: int) -> object:
        """The list with an item per input: at its path, or the answer itself if it is a list or names a class."""
        try:
            found = find(answer, self.template.filled(self.template.answers))
        except ValueError:
            if not isinstance(answer, list) and not _names_class(answer):
                raise
            found = answer
        ranked = rows == 1 and isinstance(found, list) and len(found) > 1 and all(map(_names_class, found))
        return [found] if ranked or _names_class(found) else found

    def _row(self, item: object) -> object:
        template = self.template
        scores = None if template.scores is None else find(item, template.filled(template.scores))
        if template.labels is not None:
            labels = find(item, template.filled(template.labels))
        else:
            labels, scores = self._named(scores)
        if labels is None:
            if type(scores) in (int, float) and not self.labels:
                advice = "pass outputs='labels' and their number (-M outputs=labels -M classes=10)"
                raise ValueError(f"expected a list of scores for each input; for class numbers, {advice}")
            return scores
        if scores is None:  # a text that names none of the classes in the request is no answer
            number = self._number(labels)
            return math.nan if number is None else number
        if not isinstance(labels, list) or not isinstance(scores, list) or len(labels) != len(scores):
            raise ValueError("expected as many class names as scores")
        return self._by_class([self._number(label) for label in labels], scores)

    def _named(self, part: object) -> tuple[object, object]:
        """Classes and their scores, one class without a score, or None and the part itself if it names no classes."""
        while isinstance(part, list) and len(part) == 1 and isinstance(part[0], list | str):
            part = part[0]
        pairs = part if isinstance(part, list) else [part]
        if pairs and all(map(_names_class, pairs)):
            labels, scores = ([_first(pair, keys) for pair in pairs] for keys in (_CLASS, _SCORE))
            return (labels[0], None) if scores == [None] else (labels, scores)
        if isinstance(part, Mapping):
            return list(part), list(part.values())
        return (part, None) if isinstance(part, str) or (type(part) is int and self.template.classes) else (None, part)

    def _by_class(self, numbers: list[int | None], scores: list[object]) -> list[float]:
        """Scores in the order of the classes; classes that are missing share what is left of 1."""
        logarithms, count = self.template.logarithms, len(self.template.classes) or len(set(numbers))
        sums = Counter[int]()
        for number, score in zip(numbers, scores, strict=True):
            if isinstance(score, bool) or not isinstance(score, int | float):
                raise ValueError("expected scores to be numbers")
            if number is not None:
                sums[number] += math.exp(min(score, 0.0)) if logarithms else score  # type: ignore[assignment]
        if any(number >= count for number in sums):
            raise ValueError(
                f"the answer has only {count} classes, up to number {max(sums)}: list all in classes=[...]"
            )
        missing, left = count - len(sums), 1 - sum(sums.values())
        if not missing and not logarithms:
            return [sums[number] for number in range(count)]
        if not sums:
            return [math.nan] * count
        if left < -TOLERANCE and not self.multilabel:
            raise ValueError(f"expected probabilities, because classes are missing, got a sum of {1 - left:.4g}")
        rest = 0.0 if self.multilabel else max(left, 0.0) / max(missing, 1)
        if not logarithms and rest > (best := max(sums.values())) + TOLERANCE:
            named = f"the answer gives its classes at most {best:.4g}, and each of {missing} others {rest:.4g}"
            raise ValueError(f"{named}: list all classes of the model, or pass multilabel=True (-M multilabel=true)")
        whole = [float(sums.get(number, rest)) for number in range(count)]
        total = 1.0 if self.multilabel else sum(whole)  # tokens that name no class have a share, too
        return [score / total for score in whole]

    @cached_property
    def _places(self) -> dict[str, int]:
        """The numbers of classes by name in any case, and by their keys among the choices; exact names come first."""
        asks, names = self.template.asks, {name: number for number, name in enumerate(self.template.classes)}
        keys = {key.casefold(): number for number, key in enumerate(self.template.keys())} if asks else {}
        return keys | {name.casefold(): number for name, number in names.items()} | names

    def _number(self, label: object) -> int | None:
        """The number of a class from its name, its key among the choices, or its number; None if a chat names none."""
        text, classes, asks = str(label).strip(), self.template.classes, self.template.asks
        numbered = not asks and text not in self._places and not any(name.isdigit() for name in classes)
        if numbered and (match := _NUMBERED.fullmatch(text)):
            return int(match[1])
        first = re.match(r"\W*(\w+)", text) if asks else None
        words = (text, text.casefold(), text.strip(".:;,!\"' ").casefold(), first[1].casefold() if first else text)
        number = next((self._places[word] for word in words if word in self._places), None)
        if number is None and not asks and not self.template.logarithms:
            count, name = len(classes), repr(str(label)[:60])
            what = f"the class {name}, which is not among the {count} classes" if count else f"classes such as {name}"
            raise ValueError(f"the answer names {what}: list all of the model's in order, names=[...] (-M names=[...])")
        return number


def _names_class(item: object) -> bool:
    """Whether an item is an object such as {"label": "cat", "score": 0.9}, or one without a score."""
    label = _first(item, _CLASS)
    return isinstance(label, str) or (type(label) is int and _first(item, _SCORE) is not None)


def _first(item: object, keys: Sequence[str]) -> object:
    return next((item[key] for key in keys if key in item), None) if isinstance(item, Mapping) else None


def _reshaped(found: object, shape: object) -> object:
    """A flat list as nested ones; a nested list stays as it is."""
    if not isinstance(found, list) or not isinstance(shape, list) or (found and isinstance(found[0], list)):
        return found
    try:
        return np.array(found, dtype=object).reshape(shape).tolist()
    except (TypeError, ValueError):
        raise ValueError(f"expected answers of shape {shape}, got {len(found)} values") from None
