"""What a server of the Open Inference Protocol V2 says about a model: the name, type and shape of its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlab.errors import ModelError
from rlab.victims.template import Template, shipped

_PROTOCOL = "kserve"
_TYPES: dict[str, dict[str, Any]] = {
    "FP16": {},
    "FP32": {},
    "FP64": {"dtype": "float64"},
    "UINT8": {"dtype": "uint8", "values": (0, 255)},
}


def is_described(template: Template) -> bool:
    """Whether servers that understand the template describe their models at its path without /infer."""
    return template.path == shipped()[_PROTOCOL].path


def described(template: Template, metadata: object, where: str) -> tuple[Template, tuple[int, ...]]:
    """The template with the name and type of the model's input, and the input's shape with the axis of rows.

    What the user changed stays; without usable metadata nothing changes, and the shape is empty.
    """
    inputs = metadata.get("inputs") if isinstance(metadata, Mapping) else None
    if not isinstance(inputs, list) or not inputs or not all(isinstance(each, Mapping) for each in inputs):
        return template, ()
    names = [str(each.get("name")) for each in inputs]
    if len(names) > 1:
        raise ModelError(f"expected a model with one input, got {len(names)} at {where}: {', '.join(names)}")
    given, usual, datatype = template.settings, shipped()[_PROTOCOL].settings, str(inputs[0].get("datatype"))
    if given.get("input") not in (usual["input"], names[0]):
        raise ModelError(f"the model at {where} has the input {names[0]!r}, not {given.get('input')!r}")
    changes: dict[str, Any] = {"input": names[0]}
    if given.get("datatype") == usual["datatype"]:
        if datatype not in _TYPES:
            raise ModelError(f"expected a model that takes {', '.join(_TYPES)}, got {datatype} at {where}")
        own = {name: value for name, value in _TYPES[datatype].items() if name not in template.model_fields_set}
        changes |= {"datatype": datatype, **own}
    sides = inputs[0].get("shape")
    known = isinstance(sides, list) and all(type(side) is int for side in sides)
    return template.changed(**changes), tuple(sides) if known else ()
