"""How options become checked values: pydantic declares them, one sentence tells what is wrong."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from rlab.errors import InputError
from rlab.redact import HIDDEN, SECRET_NAMES, redact
from rlab.storage.names import CONFIG
from rlab.storage.outside import MOST_DECLARED, checked, parse_toml, parse_yaml, read_text, short

_LONGEST = 4000  # characters of a name with its options
Edge = Annotated[float, Field(allow_inf_nan=True)]
Bounds = tuple[Edge, Edge]  # a range of values may be open; no other number may be infinite
Declared = TypeVar("Declared", bound="Options")
Function = TypeVar("Function", bound=Callable[..., Any])


class Options(BaseModel):
    """A declaration of options: its fields are the keys of YAML files, the keywords of functions and the flags of commands."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return checked(value)

    def plain(self) -> dict[str, Any]:
        """As plain values, fit for a file."""
        return self.model_dump(mode="json", exclude_none=True)


def check(kind: type[Declared], values: Mapping[str, Any], what: str = "the configuration") -> Declared:
    """The values as options of this kind; the first that is not valid raises one sentence."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(_sentence(kind, error, what)) from error


def takes(kind: type[Options], keywords: type[Any]) -> Callable[[Function], Function]:
    """For `inspect` and `help`: a function's `**options: Unpack[keywords]` one by one, with the defaults and words of `kind`."""

    def decorate(function: Function) -> Function:
        named = inspect.signature(function)
        own, hints = list(named.parameters.values())[:-1], get_type_hints(keywords)
        fields = {name: kind.model_fields[name] for name in hints}
        told = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.get_default(), annotation=hints[name])
            for name, field in fields.items()
        ]
        function.__signature__ = named.replace(parameters=[*own, *told])  # type: ignore[attr-defined]
        listed = "\n".join(f"    {name}: {field.description}" for name, field in fields.items() if field.description)
        function.__doc__ = f"{function.__doc__}\n\n{listed}"
        return function

    return decorate


def _sentence(kind: type[BaseModel], error: ValidationError, what: str) -> str:
    first = error.errors()[0]
    steps, why = [str(step)[:80] for step in first["loc"]], first["msg"].removeprefix("Value error, ")
    field = ".".join(steps)
    if first["type"] == "extra_forbidden":
        keys = _fields(kind, steps[:-1])
        return (
            f"unknown key {field!r} in {what}.{did_you_mean(steps[-1], keys, 0.6)} The keys there are {', '.join(keys)}"
        )
    if first["type"] == "missing":
        return f"{what} has no {field!r}: add it"
    if not steps:
        return f"{what} is not valid: {why}"
    return f"the field {field!r} of {what} is not valid: {why}, got {short(_shown(first['input'], steps))}"


def _shown(value: Any, names: Iterable[str] = ()) -> Any:
    """What was given, but for what its name says is nobody's business."""
    if any(map(SECRET_NAMES.search, names)):
        return HIDDEN
    return {key: _shown(inner, [str(key)]) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _fields(kind: type[BaseModel], steps: list[str]) -> list[str]:
    """The keys of the model that lies at these steps below `kind`."""
    for step in steps:
        field = kind.model_fields.get(step)
        if field is not None:
            kind = next(iter(_models(field.annotation)), kind)
    return [field.alias or name for name, field in kind.model_fields.items()]


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.4) -> str:
    """A sentence with the closest of these names, or nothing."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else ""


def parse_call(text: str, expected: str) -> tuple[str, dict[str, Any]]:
    """'name' or 'name(option=value)' -> the name and its options, which are plain values; `expected` is for the error."""
    match = re.fullmatch(r"([^()]+?)\s*(?:\((.*)\))?", text.strip()) if len(text) < _LONGEST else None
    try:
        call = ast.parse(f"f({match[2] or ''})" if match else "", mode="eval").body
        if match is None or not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError(text)
        return match[1], {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise InputError(f"expected {expected}, got {short(text)}") from None


def check_options(kind: type, options: Mapping[str, Any], what: str) -> None:
    """Options of a dataclass `kind` by the types it declares; one it does not have, or of another type, is refused."""
    hints = get_type_hints(kind)
    names = [option.name for option in fields(kind) if option.name in hints]
    for name, value in options.items():
        if name not in names:
            hint = did_you_mean(name, names, 0.6)
            raise InputError(f"{what} does not take the options {name}.{hint} It has {', '.join(names) or 'none'}")
        rule = TypeAdapter(hints[name], config=ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False))
        try:
            rule.validate_python(checked(value), strict=True)
        except (ValidationError, InputError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise InputError(f"expected {name} of {what} to be valid, got {short(value)}: {why}") from error


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def read_config(path: Path) -> dict[str, Any]:
    """The file's values as they stand; YAML, or TOML by its ending."""
    text = read_text(path, "configuration file", MOST_DECLARED)
    try:
        values = parse_toml(text) if path.suffix == ".toml" else parse_yaml(text)
    except InputError as error:
        raise InputError(f"cannot read the configuration {path}: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"expected {path} to hold fields like 'model:' and 'data:', got {type(values).__name__}")
    return values


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the effective configuration beside the results, as a file to start the next run from."""
    from rlab.storage.files import write_text  # imports torch, which `rlab serve` starts without

    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        write_text(folder / CONFIG, text)
