"""The flags of the fields of options, and the options that they and a --config file make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from rlab.core.goals import FORMS
from rlab.data.load import DataOptions
from rlab.errors import InputError, OptionError
from rlab.filters import FAMILIES
from rlab.policies import NAMED
from rlab.storage.config import Accepts, Options, check, read_config
from rlab.storage.outside import parse_yaml
from rlab.victims.options import ModelOptions

MODEL = (
    "module:function that returns a model, timm:NAME, torchvision:NAME, hf:NAME, clip:NAME, model.onnx, model.tflite, model.xml, "
    "model.pt2, weights.safetensors with -M factory=module:function, an http(s)://, kserve:// or other address "
    "(docs/endpoints.md), or demo:digits, demo:ecg, demo:clips"
)
DATA = (
    "Image folder (with --labels labels.csv, or one sub-folder per class), .npz with x and y, .csv or .npy signals, WFDB "
    "records, a folder of clips, images in .parquet or .tar shards, or demo:digits, demo:ecg, demo:clips"
)
_ARGUMENTS = {"model": MODEL, "data": DATA}
_SHORT = {"palette": ["-p"]}
_DEMOS = ("demo:digits", "demo:ecg", "demo:clips")
_GOALS = [re.sub("[^a-z0-9:-].*", "", form) for forms in FORMS.values() for form in forms]  # without their values
_VALUES: dict[str, Iterable[str]] = {"policy": NAMED, "policies": NAMED, "palette": FAMILIES, "goal": _GOALS}


class Part(NamedTuple):
    """A section of the options whose fields have flags: all keys by a letter, some by a flag of their own."""

    kind: type[Options]
    key: str  # of the name
    letter: str
    flags: Mapping[str, str]  # flag -> field
    about: str


_PARTS = {
    "model": Part(
        ModelOptions, "name", "-M",
        {"batch_size": "chunk"} | {name: name for name in ("device", "timeout", "rate", "price", "max_cost")},
        "Further model options, e.g. -M mean=[0.5,0.5,0.5] -M outputs=logits; the keys are:",
    ),
    "data": Part(
        DataOptions, "path", "-D", {name: name for name in ("labels", "size", "limit")},
        "Further data options, e.g. -D frames=16; the keys are:",
    ),
    "test": Part(DataOptions, "path", "-T", {}, "Options of the test data, like -D for DATA, e.g. -T split=test"),
}  # fmt: skip


class Section(NamedTuple):
    """Fields of a section of the options that get flags like those outside of it."""

    name: str
    kind: type[Options]
    names: Sequence[str]
    title: str  # of its flags in the help


@dataclass(frozen=True)
class Flag:
    """A flag or an argument that sets the field at `path` in the options."""

    name: str
    path: tuple[str, ...]
    kind: Any  # type of the value
    how: Any  # typer's declaration


def flags_of(kind: type[Options], section: Section | None = None) -> Iterator[Flag]:
    """The flags of all fields, for `gather`; fields that only a file can hold, such as a mapping, have none."""
    for name, about in _ARGUMENTS.items():
        if name in kind.model_fields:
            how = typer.Argument(help=about, show_default=False, autocompletion=_completing(_DEMOS))
            yield Flag(name, (name, _PARTS[name].key), str, how)
    about = "YAML or TOML file; command-line options override it"
    yield Flag("config", (), Path, typer.Option("--config", "-c", help=about))
    for name, field in kind.model_fields.items():
        if name in _PARTS:
            part = _PARTS[name]
            yield Flag(f"{name}_option", (name,), list[str], pairs_option(name))
            yield from (_flag(flag, part.kind, key, (name, key)) for flag, key in part.flags.items())
            if name not in _ARGUMENTS:
                yield Flag(name, (name, part.key), str, _option(name, field, str))
        elif section is not None and name == section.name:
            yield from (_flag(key, section.kind, key, (name, key), section.title) for key in section.names)
        elif flag_type(field) is not None and not (section and name in section.names):
            yield _flag(name, kind, name, (name,))
    for name in kind.removed:  # `check` says what to do instead
        yield Flag(name, (name,), str, typer.Option(f"--{name.replace('_', '-')}", hidden=True))


def _flag(flag: str, kind: type[Options], key: str, path: tuple[str, ...], title: str | None = None) -> Flag:
    field = kind.model_fields[key]
    type_of_flag = str if path[0] in _PARTS else flag_type(field)
    return Flag(flag, path, type_of_flag, _option(flag, field, type_of_flag, title))


def _option(name: str, field: FieldInfo, kind: Any, title: str | None = None) -> Any:
    flag = name.replace("_", "-")
    flags = [f"--{flag}/--no-{flag}"] if kind is bool else [f"--{flag}", *_SHORT.get(name, ())]
    complete = _completing(values_of(name, field))
    return typer.Option(
        *flags, help=about_of(field), show_default=False, autocompletion=complete, rich_help_panel=title
    )


def pairs_option(name: str) -> Any:
    """The flag -M, -D or -T."""
    return typer.Option(f"--{name}-option", _PARTS[name].letter, metavar="KEY=VALUE", help=_PARTS[name].about)


def option_keys(name: str) -> Iterator[tuple[str, str]]:
    """The keys of -M or -D that have no flag of their own, with their descriptions."""
    part = _PARTS[name]
    for key, field in part.kind.model_fields.items():
        if key != part.key and key not in part.flags.values():
            yield key, about_of(field)


def about_of(field: FieldInfo) -> str:
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


def values_of(name: str, field: FieldInfo) -> list[str]:
    """The values that the shell completes: known names, or the words of a Literal."""
    return sorted(_VALUES[name]) if name in _VALUES else _words(field.annotation)


def _words(annotation: Any) -> list[str]:
    if isinstance(annotation, str):
        return [annotation]
    return [word for part in get_args(annotation) for word in _words(part)]


def _completing(values: Iterable[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]


def gather(kind: type[Options], flags: Mapping[str, Flag], words: Mapping[str, Any]) -> Any:
    """Merge the command line over its --config file."""
    given = {name: words[name] for name in flags if words.get(name) not in (None, [])}
    config = given.pop("config", None)
    values = read_config(config) if config else {}
    for name in sorted(given, key=lambda name: not name.endswith("_option")):  # a flag goes before -M, -D and -T
        path, value = flags[name].path, given[name]
        if name.endswith("_option"):
            value = pairs(value, _PARTS[path[0]].letter)
        elif len(path) == 1:
            values |= {name: value}
            continue
        values |= {path[0]: _section(values, path[0], config) | (value if len(path) == 1 else {path[1]: value})}
    for name in (name for name in _ARGUMENTS if name in kind.model_fields):
        whole = _section(values, name, config)
        if _PARTS[name].key not in whole and (whole or kind.model_fields[name].is_required()):
            wanted = "a model" if name == "model" else name
            raise OptionError(f"expected {wanted}: rlab COMMAND MODEL DATA, or a --config file with '{name}:'")
    return check(kind, values)


def _section(values: Mapping[str, Any], name: str, config: Path | None) -> dict[str, Any]:
    """The fields of a section in the file; a string is its name."""
    before = values.get(name) or {}
    if isinstance(before, str) and name in _PARTS:
        return {_PARTS[name].key: before}
    if not isinstance(before, dict):
        raise OptionError(f"expected '{name}:' of {config} to be a name or fields, got {before!r}")
    return before


def pairs(words: Sequence[str] | None, flag: str) -> dict[str, Any]:
    """['size=32', 'mean=[.5,.5]'] -> values, parsed as YAML."""
    values = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals:
            name = re.split(r"\W", word)[0]  # the rest may be a secret
            raise OptionError(f"expected {flag} name=value, got {name!r} without '='")
        try:
            values[name.strip()] = parse_yaml(value)
        except InputError:
            raise OptionError(
                f"cannot read the value of {flag} {name.strip()!r}: expected a word or a list like [1, 2]"
            ) from None
    return {name: value for name, value in values.items() if value is not None}
