"""What a shell offers for the values of options: names of policies, filters and demo data, and the words of a choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic.fields import FieldInfo

from rlab.filters import FAMILIES
from rlab.policies import NAMED

DEMOS = ("demo:digits", "demo:ecg", "demo:clips")
_GOALS = ("untargeted", "targeted:", "below:", "multilabel")
_VALUES: dict[str, Iterable[str]] = {"policy": NAMED, "policies": NAMED, "palette": FAMILIES, "goal": _GOALS}


def values_of(name: str, field: FieldInfo) -> list[str]:
    """Values of the field `name` that have names."""
    return sorted(_VALUES[name]) if name in _VALUES else _words(field.annotation)


def _words(annotation: Any) -> list[str]:
    """Of a Literal, wherever it stands in an annotation."""
    if isinstance(annotation, str):
        return [annotation]
    return [word for part in get_args(annotation) for word in _words(part)]


def completing(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Those that begin as the word on the command line does."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]
