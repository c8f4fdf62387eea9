"""Requests to a server, written by a template."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.errors import ModelError, OptionError
from rlab.victims.encodings import ENCODINGS, PACKED, Array, Sent, content_type, encode
from rlab.victims.graphs import ANYTHING, Port
from rlab.victims.reading import Layout, lay_out
from rlab.victims.template import CHOICES, PLACEHOLDER, ROWS, Template

_LAYOUTS: tuple[Layout, ...] = ("channels_first", "channels_last", "flat")  # to try if none is chosen


@dataclass(frozen=True)
class Writer:
    """Writes requests for inputs in `bounds`; `source` is the input of the model, if that is known."""

    template: Template
    bounds: tuple[float, float]
    source: Port = ANYTHING

    def write(self, x: Tensor) -> Sent:
        """x: (b, c, *size) -> a request."""
        x, body, one = x.detach().cpu().float(), self.template.body, not self.template.many
        if isinstance(body, str) and (match := PLACEHOLDER.fullmatch(body)) and match[1] in PACKED:
            content = self._value(match[1], x, one)
            if isinstance(content, str):
                return Sent(content.encode(), "text/plain")
            return Sent(content, content_type(match[1]))
        if self.template.form:
            return self._form(x, one)
        try:
            text = json.dumps(self._fill(body, x, one), separators=(",", ":"), allow_nan=False)
        except TypeError:
            raise OptionError("bytes do not fit into JSON: use a placeholder that ends in _base64") from None
        return Sent(text.encode(), "application/json")

    def _form(self, x: Tensor, one: bool) -> Sent:
        """The fields of the body as multipart/form-data."""
        import httpx  # the victim has checked that it is installed

        files, texts = dict[str, tuple[str, bytes, str]](), dict[str, str]()
        for name, part in self.template.body.items():
            value = self._fill(part, x, one)
            if isinstance(value, bytes):
                files[name] = name, value, content_type(part.strip("{}"))
            else:
                texts[name] = value if isinstance(value, str) else json.dumps(value)
        request = httpx.Request("POST", "http://host", data=texts, files=files)
        return Sent(request.read(), request.headers["content-type"])

    def _fill(self, part: Any, x: Tensor, one: bool) -> Any:
        """A part of the body with its placeholders replaced; `one` input has no axis of rows."""
        if isinstance(part, Mapping):
            return {self._fill(key, x, one): self._fill(value, x, one) for key, value in part.items()}
        if isinstance(part, list):
            return [self._fill(value, x, one) for value in part]
        if not isinstance(part, str):
            return part
        if match := PLACEHOLDER.fullmatch(part):
            return self._value(match[1], x, one)
        return PLACEHOLDER.sub(lambda match: str(self._value(match[1], x, one)), part)

    def _value(self, name: str, x: Tensor, one: bool) -> Any:
        template = self.template
        if name == ROWS:
            return [self._fill(template.row, row[None], True) for row in x]
        if name == CHOICES:
            return "\n".join(f"{key}: {name}" for key, name in zip(template.keys(), template.classes, strict=True))
        if name in ENCODINGS:
            low, high = self.bounds
            unit = (x - low) / (high - low) if math.isfinite(high - low) else torch.full_like(x, math.nan)
            array, plain = self._array(x, unit), unit.numpy()
            if one:
                array, plain = array[0], plain[0]
            return encode(name, array, plain, int(template.settings.get("hertz", 0)))
        if name not in template.settings:
            raise OptionError("the template needs the model's name: pass an address such as openai://host:8000/MODEL")
        return template.settings[name]

    def _array(self, x: Tensor, unit: Tensor) -> Array:
        """The inputs, of which `unit` are the same in [0, 1], as the model takes them."""
        template = self.template
        values = x if template.values is None else unit * (template.values[1] - template.values[0]) + template.values[0]
        if template.dtype in ("uint8", "int8"):
            limits = np.iinfo(template.dtype)
            values = values.round().clip(limits.min, limits.max)
        likely: Sequence[Layout] = [template.layout] if "layout" in template.model_fields_set else _LAYOUTS
        layout = self.source.layout(x, likely)
        if layout is None:
            data = ", ".join(map(str, x.shape[1:]))
            raise ModelError(
                f"the model takes inputs of shape {self.source}, but the data are (rows, {data}) with channels first, and no "
                "order of axes fits: load the data in its size, such as size=224"
            )
        return np.ascontiguousarray(lay_out(values, layout).numpy(), dtype=template.dtype)
