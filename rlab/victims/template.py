"""Templates: how a batch becomes a request to a server, and where its answer holds the scores."""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from pydantic import Field, model_validator

from rlab.errors import OptionError
from rlab.storage.config import Options, check, did_you_mean, parse_call, read_config
from rlab.victims.encodings import BASE64, ENCODINGS, FILES, PACKED
from rlab.victims.paths import parse_path
from rlab.victims.reading import Layout

SHIPPED = Path(__file__).parents[1] / "assets" / "protocols.yaml"
DEFAULT = "rlab"  # the protocol of plain addresses
ROWS, MODEL, CHOICES = "rows", "model", "options"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FORM = "a protocol such as kserve or tfserving(layout='channels_first'), or a .yaml file"
_WORDS = {"list": "JSON lists", "flat": "flat JSON lists", "npy": ".npy", "raw": "raw bytes"}


class Template(Options):
    """How to query a server: strings in `body` and `row` may contain placeholders such as {png_base64} or {list}.

    Paths into the answer know keys, indexes, all items and items by name: $.outputs[0].data, $[*].score, $.outputs[probs].data.
    """

    path: str = ""  # of the address, e.g. /v2/models/{model}/infer
    body: Any = Field(...)  # JSON with placeholders, or one placeholder such as {png} for its bytes
    form: bool = False  # send the body's keys as fields of a form, and files as uploads, instead of JSON
    row: Any = "{list}"  # what each input becomes in the list that {rows} stands for
    batch: bool = False  # whether a request holds several inputs in one array
    layout: Layout = "channels_first"  # of arrays; flat: one row of values per input
    values: tuple[float, float] | None = None  # range of values in arrays, e.g. [0, 255]; None: the data's
    dtype: Literal["float32", "float64", "uint8", "int8"] = "float32"  # of arrays
    headers: dict[str, str] = Field({})  # further ones; secrets as ${NAME}
    answers: str = "$"  # path of the list with one item per input, if a request holds several
    shape: str | None = None  # path of the shape, if the answers are one flat list
    scores: str | None = "$"  # path of an input's scores in its item, as a list, by class, or as label and score
    labels: str | None = None  # path of the class names that belong to the scores, or of the predicted class
    logarithms: bool = False  # the scores are logarithms of probabilities, and may miss classes
    classes: tuple[str, ...] = ()  # the model's class names, in the order of the scores
    settings: dict[str, str | int] = Field({})  # further placeholders and their values

    @model_validator(mode="after")
    def _complete(self) -> Template:
        known, used = (*ENCODINGS, ROWS, MODEL, CHOICES, *self.settings), self.names
        if unknown := [name for name in used if name not in known]:
            raise ValueError(f"unknown placeholder {{{unknown[0]}}}: expected one of {', '.join(known)}")
        for text in self._paths:
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

    @model_validator(mode="before")
    @classmethod
    def _labels_alone(cls, values: Any) -> Any:
        alone = isinstance(values, dict) and values.get("labels") is not None and "scores" not in values
        return {**values, "scores": None} if alone else values

    @property
    def _paths(self) -> list[str]:
        return [text for text in (self.answers, self.shape, self.scores, self.labels) if text is not None]

    def filled(self, text: str) -> str:
        """A path with the settings in place of their names."""
        return PLACEHOLDER.sub(lambda match: str(self.settings.get(match[1], match[0])), text)

    @property
    def names(self) -> list[str]:
        """All placeholders."""
        return _names([self.body, self.row, self.path, *self._paths])

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
        names = _names([self.body, self.row] if ROWS in _names(self.body) else self.body)
        return tuple(dict.fromkeys(name.removesuffix(BASE64) for name in names if name in (*PACKED, "list", "flat")))

    @property
    def words(self) -> str:
        """How the model gets its inputs."""
        how = " and ".join(_WORDS.get(name, name.upper()) for name in self.encodings)
        plain = self.layout == "channels_first" or set(self.encodings) <= set(FILES)
        arranged = (
            "" if plain else f", {'one row per input' if self.layout == 'flat' else self.layout.replace('_', ' ')}"
        )
        return f"as {how}{arranged}{'' if self.many else ', one per request'}"

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


def _names(body: object) -> list[str]:
    """The placeholders in a body, without the braces."""
    return PLACEHOLDER.findall(repr(body))


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
