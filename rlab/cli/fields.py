"""What a field of an options model becomes on the command line: the help and the type of its flag."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from rlab.storage.config import Accepts, Options


def about(field: FieldInfo) -> str:
    """A field's description as the help of its flag: with a capital, unless it starts with a value such as module:function."""
    text = (field.description or "").strip()
    return text if ":" in text.partition(" ")[0][:-1] else text[:1].upper() + text[1:]


def flag_type(field: FieldInfo) -> Any | None:
    """The type of a field's flag; None for fields that only a file can hold, such as a section."""
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not NoneType]
    if any(get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Options)) for kind in kinds):
        return None
    if any(get_origin(kind) is tuple and get_args(kind)[:1] in ((Any,), (str,)) for kind in kinds):
        return list[str]
    text = any(isinstance(mark, Accepts) and str in get_args(mark.kind) for mark in field.metadata)
    return kinds[0] if len(kinds) == 1 and kinds[0] in (bool, int, float) and not text else str


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _alternatives(part)]
    return [str] if get_origin(annotation) is Literal else [annotation]
