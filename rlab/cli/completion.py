"""Shell completion for option values: policies, filters, demo data and choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic.fields import FieldInfo

from rlab.core.goals import FORMS
from rlab.filters import FAMILIES
from rlab.policies import NAMED

DEMOS = ("demo:digits", "demo:ecg", "demo:clips")
_GOALS = [re.sub("[^a-z0-9:-].*", "", form) for forms in FORMS.values() for form in forms]  # without their values
_VALUES: dict[str, Iterable[str]] = {"policy": NAMED, "policies": NAMED, "palette": FAMILIES, "goal": _GOALS}


def values_of(name: str, field: FieldInfo) -> list[str]:
    return sorted(_VALUES[name]) if name in _VALUES else _words(field.annotation)


def _words(annotation: Any) -> list[str]:
    """The strings of every Literal in an annotation."""
    if isinstance(annotation, str):
        return [annotation]
    return [word for part in get_args(annotation) for word in _words(part)]


def completing(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Values that start with the incomplete word."""
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]
