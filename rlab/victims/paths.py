"""Paths into JSON, a small part of JSONPath: $.key, [0], [*] for all items, [name] for the item with this `name`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_STEP = re.compile(r"\.([\w-]+)|\[([^\[\]]+)\]")
ALL = "*"


def parse_path(text: str) -> tuple[str | int, ...]:
    """'$.outputs[0].data' -> ('outputs', 0, 'data'); ValueError if it is not a path."""
    if not re.fullmatch(rf"\$({_STEP.pattern})*", text):
        raise ValueError(f"expected a path such as $.predictions[*].score, got {text!r}")
    steps = (key or place.strip("'\"") for key, place in _STEP.findall(text))
    return tuple(int(step) if re.fullmatch(r"-?\d+", step) else step for step in steps)


def find(value: object, path: str) -> object:
    """What lies at the path; ValueError says what was expected and what is there."""
    return _follow(value, parse_path(path), path)


def _follow(value: object, steps: tuple[str | int, ...], path: str) -> object:
    for at, step in enumerate(steps):
        if step == ALL and isinstance(value, list):
            return [_follow(item, steps[at + 1 :], path) for item in value]
        if isinstance(value, Mapping) and str(step) in value:
            value = value[str(step)]
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        elif isinstance(value, list) and (
            named := [item for item in value if isinstance(item, Mapping) and item.get("name") == step]
        ):
            value = named[0]
        else:
            raise ValueError(f"expected {path} in the answer, got {_kind(value)} where {str(step)!r} should be")
    return value


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return f"an object with {', '.join(map(repr, list(value)[:6])) or 'no keys'}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"{value!r:.60}"
