"""What servers of the Open Inference Protocol V2 say about a model, over REST or gRPC: the name, type and shape of its input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from rlab.errors import ModelError
from rlab.victims.graphs import ANYTHING, Port
from rlab.victims.template import Template, shipped

TYPES = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "UINT8": "uint8", "INT8": "int8"}
_PROTOCOL = "kserve"
_IN_JSON: dict[str, dict[str, Any]] = {
    "FP64": {"dtype": "float64"},
    "UINT8": {"dtype": "uint8", "values": (0, 255)},
    "INT8": {"dtype": "int8", "values": (-128, 127)},
}


class _Input(BaseModel):
    name: str
    datatype: str
    shape: tuple[int, ...] = ()


class _Described(BaseModel):
    inputs: list[_Input] = Field(min_length=1)


def input_port(name: str, datatype: str, shape: Sequence[int], where: str) -> Port:
    """An input of a model, which a server describes in these words."""
    if datatype not in TYPES:
        raise ModelError(f"expected a model that takes {', '.join(TYPES)}, got {datatype} at {where}")
    return Port(name, tuple(None if side < 0 else int(side) for side in shape), np.dtype(TYPES[datatype]))


def is_described(template: Template) -> bool:
    """Whether servers that understand the template describe their models at its path without /infer."""
    return template.path == shipped()[_PROTOCOL].path


def described(template: Template, metadata: object, where: str) -> tuple[Template, Port]:
    """The template with the name and type of the model's input, and that input.

    What the user changed stays; without usable metadata nothing changes, and every input fits.
    """
    try:
        inputs = _Described.model_validate(metadata).inputs
    except ValidationError:
        return template, ANYTHING
    if len(inputs) > 1:
        names = ", ".join(each.name for each in inputs)
        raise ModelError(f"expected a model with one input, got {len(inputs)} at {where}: {names}")
    source = input_port(inputs[0].name, inputs[0].datatype, inputs[0].shape, where)
    given, usual, datatype = template.settings, shipped()[_PROTOCOL].settings, inputs[0].datatype
    if given.get("input") not in (usual["input"], source.name):
        raise ModelError(f"the model at {where} has the input {source.name!r}, not {given.get('input')!r}")
    changes: dict[str, Any] = {"input": source.name}
    if given.get("datatype") == usual["datatype"]:
        own = _IN_JSON.get(datatype, {})
        changes |= {name: value for name, value in own.items() if name not in template.model_fields_set}
        changes["datatype"] = datatype
    return template.changed(**changes), source
