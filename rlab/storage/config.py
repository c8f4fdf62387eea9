"""Check options: pydantic declares them, and an invalid one raises an error of one sentence."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, Unpack, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic.fields import FieldInfo

from rlab.errors import InputError, KeywordError, OptionError
from rlab.redact import HIDDEN, SECRET_NAMES, redact
from rlab.storage.names import CONFIG
from rlab.storage.outside import MOST_DECLARED, checked, parse_toml, parse_yaml, read_text, short

_KEY = "[key]"  # pydantic's mark for a key of a mapping
_LONGEST = 4000  # characters of 'name(option=value)'
Edge = Annotated[float, Field(allow_inf_nan=True)]
Bounds = tuple[Edge, Edge]  # a range may be open; no other number may be infinite
Declared = TypeVar("Declared", bound=BaseModel)
Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")


class Options(BaseModel):
    """Declared options: the fields are YAML keys, function keywords and command-line flags."""

    removed: ClassVar[Mapping[str, str]] = {}  # fields of earlier versions, and what to do instead

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @field_validator("*")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return checked(value)

    def plain(self) -> dict[str, Any]:
        """Return plain values that fit a file."""
        return self.model_dump(mode="json", exclude_none=True)


def check(kind: type[Declared], values: Mapping[str, Any], what: str = "the configuration") -> Declared:
    """Validate `values` as options of this kind; `what` names them in the error."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
    raise OptionError(_sentence(kind, values, first, what))  # out here, no traceback of pydantic comes with it


def check_keywords(function: Callable[..., object], kind: type[Declared], values: Mapping[str, Any]) -> Declared:
    """Validate keywords of a public function as options of this kind; an unknown keyword is a TypeError."""
    call = f"rlab.{function.__name__}"
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        name = str(first["loc"][0])
        if instead := _instead(kind, name):
            raise KeywordError(f"{call}() no longer has the keyword {name!r}: {instead}")
        raise unknown_keyword(call, name, [*inspect.signature(function).parameters, *kind.model_fields])
    raise OptionError(_sentence(kind, values, first, f"{call}()", "keyword"))


def unknown_keyword(call: str, name: str, known: Iterable[str]) -> KeywordError:
    """Return the error for a keyword that the function or class `call` does not have."""
    hint = did_you_mean(name, known, 0.6) or f" help({call}) lists its keywords."
    return KeywordError(f"{call}() has no keyword {name!r}.{hint}".rstrip("."))


def named_keywords(kind: type[Made]) -> type[Made]:
    """Decorate a class whose constructor should suggest the nearest name for an unknown keyword."""
    inits: list[Callable[..., None]] = [own["__init__"] for own in map(vars, kind.__mro__[:-1]) if "__init__" in own]
    parameters = [each for init in inits for each in inspect.signature(init).parameters.values()]
    known = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    packed = [get_args(hint) for hint in get_type_hints(inits[0]).values() if get_origin(hint) is Unpack]
    known += [name for (keywords,) in packed for name in get_type_hints(keywords)]
    made = inits[0]

    @wraps(made)
    def checked_init(self: Made, *given: Any, **keywords: Any) -> None:
        if unknown := [name for name in keywords if name not in known]:
            raise unknown_keyword(type(self).__name__, unknown[0], known)
        made(self, *given, **keywords)

    setattr(kind, "__init__", checked_init)  # noqa: B010 (mypy does not allow an assignment)
    return kind


@dataclass(frozen=True)
class Accepts:
    """What callers may pass for a field whose validator converts it: `size: Annotated[tuple[int, ...], Accepts(int | str)]`."""

    kind: Any


def takes(kind: type[Options], *without: str) -> Callable[[Function], Function]:
    """List the fields of `kind` as keywords of a function with `**options`, in `inspect` and `help`.

    `scripts/write_stubs.py` writes the same keywords for type checkers.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[:-1]
        fields = {name: field for name, field in kind.model_fields.items() if name not in without}
        keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        listed = [keyword(name, default=each.get_default(), annotation=_input(each)) for name, each in fields.items()]
        function.__signature__ = signature.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
        lines = (f"    {name}: {field.description}" for name, field in fields.items() if field.description)
        function.__doc__ = f"{function.__doc__}\n\n" + "\n".join(lines)
        return function

    return decorate


def _input(field: FieldInfo) -> Any:
    return next((mark.kind for mark in field.metadata if isinstance(mark, Accepts)), field.annotation)


def _sentence(
    kind: type[BaseModel], values: Mapping[str, Any], first: Mapping[str, Any], what: str, part: str = "field"
) -> str:
    why, missing = first["msg"].removeprefix("Value error, "), first["type"] == "missing"
    steps = [str(step)[:80] for step in first["loc"]] if missing else _steps(values, first["loc"])
    field = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(steps))
    if first["type"] == "extra_forbidden":
        owner = _owner(kind, steps[:-1])
        if instead := _instead(owner, steps[-1]):
            return f"the key {field!r} of {what} was removed: {instead}"
        keys = [field.alias or name for name, field in owner.model_fields.items()]
        hint = did_you_mean(steps[-1], keys, 0.6)
        return f"unknown key {field!r} in {what}.{hint} The keys there are {', '.join(keys)}"
    if missing:
        return f"{what} has no {field!r}: add it"
    if not steps:
        return f"{what} is not valid: {why}"
    part = "key" if first["loc"][-1] == _KEY else part
    return f"the {part} {field!r} of {what} is not valid: {why}{_got(why, first['input'], steps)}"


def _steps(values: Any, loc: Sequence[int | str]) -> list[str]:
    """Return the way through the values to an error; pydantic also names branches of unions, which are not part of it."""
    steps = list[str]()
    for step in loc:
        listed, mapped = isinstance(values, list | tuple), isinstance(values, Mapping)
        if step in (range(len(values)) if listed else values if mapped else ()):
            values = values[step]
        elif steps:
            continue
        steps.append(str(step)[:80])
    return steps


def _got(why: str, value: Any, steps: Sequence[str]) -> str:
    """Name the value that came, unless the reason already does or the value may be a secret."""
    if " got " in why:
        return ""
    shown = _shown(value, steps)
    secret = f"a {type(value).__name__}, which is not shown because it may hold a secret"
    return f", got {secret if shown == HIDDEN else short(shown)}"


def _shown(value: Any, names: Iterable[str] = ()) -> Any:
    """Return the value with secrets hidden, judged by the names of its keys."""
    if any(map(SECRET_NAMES.search, names)):
        return HIDDEN
    return {key: _shown(inner, [str(key)]) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _instead(kind: type[BaseModel], name: str) -> str:
    """What to do instead of using this field of an earlier version; empty for other names."""
    return kind.removed.get(name, "") if issubclass(kind, Options) else ""


def _owner(kind: type[BaseModel], steps: list[str]) -> type[BaseModel]:
    """The model at this path below `kind`."""
    for step in steps:
        field = kind.model_fields.get(step)
        if field is not None:
            kind = next(iter(_models(field.annotation)), kind)
    return kind


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.4) -> str:
    """Suggest the closest of these names, or return an empty string."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]!r}?" if near else ""


def parse_call(text: str, expected: str) -> tuple[str, dict[str, Any]]:
    """Parse 'name' or 'name(option=value)' into the name and its options; the error says what was `expected`."""
    match = re.fullmatch(r"([^()]+?)\s*(?:\((.*)\))?", text.strip()) if len(text) < _LONGEST else None
    try:
        call = ast.parse(f"f({match[2] or ''})" if match else "", mode="eval").body
        if match is None or not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError(text)
        return match[1], {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise OptionError(f"expected {expected}, got {short(text)}") from None


def check_options(kind: type, options: Mapping[str, Any], what: str, without: Sequence[str] = ()) -> None:
    """Check options against the fields and types of the dataclass `kind`; those in `without` are not options."""
    hints = get_type_hints(kind)
    names = [option.name for option in fields(kind) if option.name in hints and option.name not in without]
    for name, value in options.items():
        if name not in names:
            hint = did_you_mean(name, names, 0.6)
            raise OptionError(f"{what} does not take the options {name}.{hint} It has {', '.join(names) or 'none'}")
        rule = TypeAdapter(hints[name], config=Options.model_config)
        try:
            rule.validate_python(checked(value), strict=True)
        except (ValidationError, InputError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise OptionError(f"the option {name} of {what} is not valid: {why}, got {short(value)}") from error


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def read_config(path: Path) -> dict[str, Any]:
    """Read a YAML file, or a TOML file if its name ends in .toml."""
    text = read_text(path, "configuration file", MOST_DECLARED)
    try:
        values = parse_toml(text) if path.suffix == ".toml" else parse_yaml(text)
    except InputError as error:
        raise OptionError(f"cannot read the configuration {path}: {error}") from error
    if not isinstance(values, dict):
        raise OptionError(f"expected {path} to hold fields like 'model:' and 'data:', got {type(values).__name__}")
    return values


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the effective configuration beside the results, as a file to start the next run from."""
    from rlab.storage.files import write_text  # imports torch, which `rlab serve` starts without

    if not (folder / CONFIG).exists():
        text = yaml.safe_dump(redact(dict(config)), sort_keys=False, allow_unicode=True)
        write_text(folder / CONFIG, text)
