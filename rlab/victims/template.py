"""Templates: how a batch becomes a request to a server, and where its answer holds the scores."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from rlab.errors import ModelError, OptionError
from rlab.storage.config import Options, check, did_you_mean, parse_call, read_config
from rlab.victims.encodings import BASE64, ENCODINGS, FILES, PACKED, Array, content_type, encode
from rlab.victims.paths import parse_path

SHIPPED = Path(__file__).parents[1] / "assets" / "protocols.yaml"
DEFAULT = "rlab"  # the protocol of plain addresses
ROWS, MODEL, CHOICES = "rows", "model", "options"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
LAYOUTS: dict[str, Callable[[Array, int], Array]] = {  # of an array with channels at this axis
    "channels_first": lambda array, channels: array,
    "channels_last": lambda array, channels: np.moveaxis(array, channels, -1),
    "flat": lambda array, channels: array.reshape(*array.shape[:channels], -1),
}
_FORM = "a protocol such as kserve or tfserving(layout='channels_first'), or a .yaml file"


class Template(Options):
    """How to ask a server: strings in `body` and `row` may contain placeholders such as {png_base64} or {list}.

    Paths into the answer know keys, indexes, all items and items by name: $.outputs[0].data, $[*].score, $.outputs[probs].data.
    """

    path: str = Field("", description="path of the address, e.g. /v2/models/{model}/infer")
    body: Any = Field(description="JSON body with placeholders, or one placeholder such as {png} for its bytes")
    form: bool = Field(
        False, description="send the body's keys as fields of a form, and files as uploads (default: JSON)"
    )
    row: Any = Field("{list}", description="what each input becomes in the list that {rows} stands for")
    batch: bool = Field(False, description="a request holds several inputs in one array (default: one input)")
    layout: Literal["channels_first", "channels_last", "flat"] = Field(
        "channels_first", description="axis order of arrays; flat: one row of values per input"
    )
    values: tuple[float, float] | None = Field(
        None, description="range of values in arrays, e.g. [0, 255] (default: the data's)"
    )
    dtype: Literal["float32", "float64", "uint8"] = Field("float32", description="number format of arrays")
    headers: dict[str, str] = Field({}, description="further headers; write secrets as ${NAME}")
    answers: str = Field("$", description="path of the list with one item per input, if a request holds several")
    shape: str | None = Field(None, description="path of the shape, if the answers are one flat list")
    scores: str | None = Field(
        "$", description="path of an input's scores in its item, as a list, by class, or as label and score"
    )
    labels: str | None = Field(
        None, description="path of the class names that belong to the scores, or of the predicted class"
    )
    logarithms: bool = Field(False, description="the scores are logarithms of probabilities, and may miss classes")
    classes: tuple[str, ...] = Field((), description="the model's class names, in the order of the scores")
    settings: dict[str, str | int] = Field({}, description="your own placeholders and their values")

    @model_validator(mode="before")
    @classmethod
    def _labels_alone(cls, values: Any) -> Any:
        alone = isinstance(values, Mapping) and values.get("labels") is not None and "scores" not in values
        return {**values, "scores": None} if alone else values

    @model_validator(mode="after")
    def _complete(self) -> Template:
        known, used = (*ENCODINGS, ROWS, MODEL, CHOICES, *self.settings), self.names
        if unknown := [name for name in used if name not in known]:
            raise ValueError(f"unknown placeholder {{{unknown[0]}}}: expected one of {', '.join(known)}")
        for text in self._paths():
            parse_path(self.filled(text))
        if self.scores is None and self.labels is None:
            raise ValueError("expected a path of scores, labels or both")
        if self.many and any(name.removesuffix(BASE64) in FILES for name in _names(self.body)):
            raise ValueError("a file holds one input: use it in 'row', with {rows} in 'body', or leave out batch")
        if self.form and not isinstance(self.body, dict):
            raise ValueError("a form has fields by name, such as {file: '{png}'}")
        if CHOICES in used and len(self.classes) == 1:
            raise ValueError("expected at least 2 classes")
        return self

    def _paths(self) -> list[str]:
        return [text for text in (self.answers, self.shape, self.scores, self.labels) if text is not None]

    def filled(self, text: str) -> str:
        """A path with the settings in place of their names."""
        return _PLACEHOLDER.sub(lambda match: str(self.settings.get(match[1], match[0])), text)

    @property
    def names(self) -> list[str]:
        """All placeholders."""
        return _names([self.body, self.row, self.path, *self._paths()])

    @cached_property
    def many(self) -> bool:
        """Whether a request may hold several inputs."""
        return self.batch or ROWS in _names(self.body)

    @cached_property
    def asks(self) -> bool:
        """Whether the request lists the classes to choose from."""
        return CHOICES in _names(self.body)

    @property
    def encodings(self) -> tuple[str, ...]:
        """The encodings of inputs, e.g. ('png',)."""
        body = [self.body, self.row] if ROWS in _names(self.body) else [self.body]
        return tuple(
            dict.fromkeys(name.removesuffix(BASE64) for name in _names(body) if name in (*PACKED, "list", "flat"))
        )

    @property
    def words(self) -> str:
        """How the model gets its inputs."""
        kinds = {"list": "JSON lists", "flat": "flat JSON lists", "npy": ".npy", "raw": "raw bytes"}
        how = " and ".join(kinds.get(name, name.upper() if name in FILES else name) for name in self.encodings)
        arranged = {"channels_first": "", "channels_last": ", channels last", "flat": ", one row per input"}[
            self.layout
        ]
        files = set(self.encodings) <= set(FILES)
        return f"as {how}{'' if files else arranged}{'' if self.many else ', one per request'}"

    def keys(self) -> tuple[str, ...]:
        """What stands for each class in {options}: letters, or numbers if there are too many classes."""
        few = len(self.classes) <= len(ascii_uppercase)
        return tuple(ascii_uppercase[: len(self.classes)] if few else map(str, range(len(self.classes))))

    def changed(self, **changes: Any) -> Template:
        """The template with other fields; names that are no fields are settings."""
        own = {name: value for name, value in changes.items() if name in type(self).model_fields}
        further = {name: value for name, value in changes.items() if name not in own}
        if unknown := [name for name in further if name not in self.settings and name != MODEL]:
            names = [*type(self).model_fields, *self.settings]
            hint = did_you_mean(unknown[0], names, 0.6)
            raise OptionError(f"the template has no {unknown[0]!r}.{hint} It has {', '.join(names)}")
        settings = {**self.settings, **own.pop("settings", {}), **further}
        return check(Template, {**self.model_dump(exclude_unset=True), **own, "settings": settings}, "the template")


def _names(value: object) -> list[str]:
    """The placeholders in a body, without the braces."""
    if isinstance(value, str):
        return _PLACEHOLDER.findall(value)
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [name for part in parts for name in _names(part)]


@cache
def shipped() -> dict[str, Template]:
    """The templates of known protocols, by name."""
    return {name: check(Template, values, f"the protocol {name}") for name, values in read_config(SHIPPED).items()}


def load_template(spec: str) -> Template:
    """A template by name, by name with changes such as kserve(input='x'), or from a file."""
    if spec.endswith((".yaml", ".yml", ".toml")):
        return check(Template, read_config(Path(spec)), f"the template {spec}")
    name, changes = parse_call(spec, _FORM)
    if name not in shipped():
        hint = did_you_mean(name, shipped())
        raise OptionError(f"unknown protocol {name!r}.{hint} Expected one of {', '.join(shipped())}, or a .yaml file")
    if "headers" in changes:  # a run stores this text
        raise OptionError("headers may be secret: pass them as headers=, or put them into a template file")
    return shipped()[name].changed(**changes) if changes else shipped()[name]


@dataclass(frozen=True)
class Inputs:
    """One input (c, *size), or a batch of them."""

    array: Array
    channels: int  # their axis


@dataclass(frozen=True)
class Sent:
    """The body of a request."""

    content: bytes
    kind: str  # content type

    @property
    def is_text(self) -> bool:
        return self.kind in ("application/json", "text/plain")


@dataclass(frozen=True)
class Writer:
    """Writes requests for inputs in `bounds`."""

    template: Template
    bounds: tuple[float, float]
    takes: tuple[int, ...] = ()  # shape of the model's input with the axis of rows, if known; negative: any length

    def write(self, x: Array) -> Sent:
        """x: (b, c, *size) float32 -> a request."""
        body, whole = self.template.body, Inputs(x, 1) if self.template.many else Inputs(x[0], 0)
        if isinstance(body, str) and (match := _PLACEHOLDER.fullmatch(body)) and match[1] in PACKED:
            content = self._value(match[1], whole)
            if isinstance(content, str):
                return Sent(content.encode(), "text/plain")
            return Sent(bytes(content), content_type(match[1]))
        if self.template.form:
            return self._form(whole)
        filled = self._fill(body, whole)
        try:
            return Sent(json.dumps(filled, separators=(",", ":"), allow_nan=False).encode(), "application/json")
        except TypeError:
            raise OptionError("bytes do not fit into JSON: use a placeholder that ends in _base64") from None

    def _form(self, x: Inputs) -> Sent:
        """The fields of the body as multipart/form-data."""
        import httpx  # the victim has checked that it is installed

        files, texts = dict[str, tuple[str, bytes, str]](), dict[str, str]()
        for name, value in self.template.body.items():
            filled = self._fill(value, x)
            if isinstance(filled, bytes):
                files[name] = name, filled, content_type(str(value).strip("{}"))
            else:
                texts[name] = filled if isinstance(filled, str) else json.dumps(filled)
        request = httpx.Request("POST", "http://host", data=texts, files=files)
        return Sent(request.read(), request.headers["content-type"])

    def _fill(self, part: Any, x: Inputs) -> Any:
        """A part of the body with its placeholders replaced."""
        if isinstance(part, Mapping):
            return {self._fill(key, x): self._fill(value, x) for key, value in part.items()}
        if isinstance(part, list):
            return [self._fill(value, x) for value in part]
        if not isinstance(part, str):
            return part
        if match := _PLACEHOLDER.fullmatch(part):
            return self._value(match[1], x)
        return _PLACEHOLDER.sub(lambda match: str(self._value(match[1], x)), part)

    def _value(self, name: str, x: Inputs) -> Any:
        template = self.template
        if name == ROWS:
            return [self._fill(template.row, Inputs(row, 0)) for row in x.array]
        if name == CHOICES:
            return "\n".join(f"{key}: {name}" for key, name in zip(template.keys(), template.classes, strict=True))
        if name in ENCODINGS:
            low, high = self.bounds
            unit = (x.array - low) / (high - low) if np.isfinite(high - low) else np.full(1, np.nan)
            return encode(name, self._array(x, unit), unit, int(template.settings.get("hertz", 0)))
        if name not in template.settings:
            raise OptionError("the template needs the model's name: pass an address such as openai://host:8000/MODEL")
        return template.settings[name]

    def _array(self, x: Inputs, unit: Array) -> Array:
        template, array = self.template, x.array
        if template.values is not None:
            low, high = template.values
            array = unit * np.float32(high - low) + np.float32(low)
        if template.dtype == "uint8":
            array = array.round().clip(0, 255)
        return np.ascontiguousarray(self._arranged(array, x.channels), dtype=template.dtype)

    def _arranged(self, array: Array, channels: int) -> Array:
        """The array in the template's layout, or, unless that was chosen, in the one that the model's input has."""
        chosen = "layout" in self.template.model_fields_set
        for name in [self.template.layout] if chosen or not self.takes else LAYOUTS:
            arranged = LAYOUTS[name](array, channels)
            sides = arranged.shape[channels:]
            pairs = zip(self.takes[1:], sides, strict=False)
            if not self.takes or (
                len(self.takes[1:]) == len(sides) and all(own < 0 or own == side for own, side in pairs)
            ):
                return arranged
        shape = ", ".join("any" if side < 0 else str(side) for side in self.takes[1:])
        data = ", ".join(map(str, array.shape[channels:]))
        raise ModelError(
            f"the model takes inputs of shape ({shape}), but the data are ({data}) with channels first, and no order of axes "
            "fits: load the data in its size, such as size=224"
        )
