"""Commands whose flags are generated from an options model: one flag per field, with the field's description as its help.

    @declared(RunOptions)
    def command(options: RunOptions, folder: Out = None) -> None: ...

Command-line options override the --config file, which overrides the defaults of the model.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import typer
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from rlab.cli.completion import DEMOS, completing, values_of
from rlab.cli.fields import about, flag_type
from rlab.cli.spoken import grouped, spoken
from rlab.cli.spoken import note as note
from rlab.cli.spoken import out as out
from rlab.data.load import DataOptions
from rlab.errors import FolderError, InputError, OptionError
from rlab.present.table import plain
from rlab.runs.understood import Understood
from rlab.storage.config import Options, check, read_config
from rlab.storage.lock import hold
from rlab.storage.outside import is_text, parse_yaml, short
from rlab.storage.run_file import RUN
from rlab.victims.options import ModelOptions


def check_out(path: Path | None) -> Path | None:
    """Check, before any query is spent, that the folder exists or can be made."""
    if path is None:
        return None
    try:
        nearest = next((place for place in (path, *path.parents) if place.exists()), None)
    except OSError as error:
        raise FolderError(f"cannot write to {short(path)}: {error.strerror}: name another folder with --out") from error
    if not is_text(str(path)) or (nearest is not None and not nearest.is_dir()):
        why = "exists and holds something else" if is_text(str(path)) else "is not UTF-8"
        raise FolderError(f"{nearest or path} {why}: name another folder with --out")
    return path


def out_flag(about: str) -> Any:
    """The flag --out for a folder."""
    return typer.Option("--out", "-o", callback=check_out, help=about)


Out = Annotated[Path | None, out_flag("Run folder (default: a new one below runs/)")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait while another process uses the folder")]
Device = Annotated[str | None, typer.Option(help="Device for the models: cpu, cuda or cuda:1")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Maximum batch size for the models")]
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
_SHORT = {"palette": "-p"}
_NESTED: dict[str, tuple[type[Options], str, str]] = {
    "model": (ModelOptions, "name", "-M"),
    "data": (DataOptions, "path", "-D"),
    "test": (DataOptions, "path", "-T"),
}
_OWN_FLAGS: dict[str, dict[str, str]] = {
    "model": {"batch_size": "chunk"} | {name: name for name in ("device", "timeout", "rate", "price", "max_cost")},
    "data": {name: name for name in ("labels", "size", "limit")},
    "test": {},
}  # fields with a flag besides -M, -D and -T


class Section(NamedTuple):
    """Fields of a section of the options that get flags like those outside of it."""

    name: str
    kind: type[Options]
    names: Sequence[str]
    title: str  # of its flags in the help


def declared(
    kind: type[Options], without: Sequence[str] = (), section: Section | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of `kind` and call it with the checked options; fields in `without` get no flag."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        call = grouped(command)
        own = [p for p in inspect.signature(call).parameters.values() if p.name != "options"]
        generated = [
            p for p in _parameters(kind, without, section) if p.name not in {parameter.name for parameter in own}
        ]

        def run(**words: Any) -> None:
            mine = {p.name: words.pop(p.name) for p in own}
            call(options=gather(kind, words, section=section), **mine)

        first = [p for p in own if _is_argument(p)]  # positional order: the command's own arguments, then DATA
        rest = [p for p in own if not _is_argument(p)]
        run.__signature__ = inspect.Signature([*first, *generated, *rest])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return spoken(run, queries=not kind.model_fields.keys().isdisjoint(("model", "models")))

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(how, ArgumentInfo) for how in get_args(parameter.annotation)[1:])


def gather(
    kind: type[Options], words: Mapping[str, Any], what: str = "the configuration", section: Section | None = None
) -> Any:
    """Merge the command line over its --config file."""
    flags = {name: value for name, value in words.items() if value is not None and value != []}
    config = flags.pop("config", None)
    values = read_config(config) if config else {}
    for name, (_, key, flag) in _NESTED.items():
        if name in kind.model_fields:
            own = {field: flags.pop(flag) for flag, field in _OWN_FLAGS[name].items() if flag in flags}
            fields = pairs(flags.pop(f"{name}_option", None), flag) | own
            fields |= {key: flags.pop(name)} if name in flags else {}
            values = _merged(values, name, key, fields, kind, config)
    own = {name: flags.pop(name) for name in section.names if name in flags} if section else {}
    if section and own:
        before = values.get(section.name) or {}
        values = values | {section.name: {**before, **own} if isinstance(before, dict) else before}
    return check(kind, values | flags, what)


def _merged(
    values: dict[str, Any], name: str, key: str, fields: dict[str, Any], kind: type[Options], config: Path | None
) -> dict[str, Any]:
    """Merge the fields of model, data or test on the command line over the file's."""
    before = values.get(name) or {}
    if not isinstance(before, str | dict):
        raise OptionError(f"expected '{name}:' of {config} to be a {key} or fields, got {before!r}")
    whole = ({key: before} if isinstance(before, str) else before) | fields
    if name in _ARGUMENTS and key not in whole and (whole or kind.model_fields[name].is_required()):
        raise OptionError(
            f"expected {'a model' if name == 'model' else name}: rlab COMMAND MODEL DATA, or a --config file with '{name}:'"
        )
    return values | {name: whole} if whole else values


def _parameters(kind: type[Options], without: Sequence[str], section: Section | None) -> Iterator[inspect.Parameter]:
    for name, kinds in _ARGUMENTS.items():
        if name in kind.model_fields:
            demos = completing(DEMOS)
            yield _parameter(name, str, typer.Argument(help=kinds, show_default=False, autocompletion=demos))
    if "config" not in without:
        overridden = "YAML or TOML file; command-line options override it"
        yield _parameter("config", Path, typer.Option("--config", "-c", help=overridden))
    for name, field in kind.model_fields.items():
        kind_of_flag = str if name in _NESTED else flag_type(field)
        if name not in (*_ARGUMENTS, *without, *(section.names if section else ())) and kind_of_flag is not None:
            yield _parameter(name, kind_of_flag, _option(name, field, kind_of_flag))
    if section is not None:
        for name in section.names:
            inner = flag_type(section.kind.model_fields[name])
            yield _parameter(name, inner, flag_of(section.kind, name, section.title))
    for name, (nested, _, _) in _NESTED.items():
        if name in kind.model_fields:
            for own, key in _OWN_FLAGS[name].items():
                if own in without:
                    continue
                yield _parameter(own, str, _option(own, nested.model_fields[key], str))
            yield _parameter(f"{name}_option", list[str], option_flag(name))


_FURTHER = {
    "model": "Further model options, e.g. -M mean=[0.5,0.5,0.5] -M outputs=logits; the keys are:",
    "data": "Further data options, e.g. -D frames=16; the keys are:",
    "test": "Options of the test data, like -D for DATA, e.g. -T split=test",
}


def option_flag(name: str) -> Any:
    """The flag -M, -D or -T."""
    return typer.Option(f"--{name}-option", _NESTED[name][2], metavar="KEY=VALUE", help=_FURTHER[name])


def option_keys(name: str) -> Iterator[tuple[str, str]]:
    """The keys of -M or -D that have no flag of their own, with their descriptions."""
    section, own, _ = _NESTED[name]
    for key, field in section.model_fields.items():
        if key != own and key not in _OWN_FLAGS[name].values():
            yield key, about(field)


def _parameter(name: str, annotation: Any, how: Any) -> inspect.Parameter:
    kind = Annotated[annotation | None, how]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def flag_of(kind: type[Options], name: str, title: str | None = None) -> Any:
    """The flag of a field, in the group of the help with this title (default: its usual group)."""
    field = kind.model_fields[name]
    return _option(name, field, flag_type(field), title)


def _option(name: str, field: FieldInfo, annotation: Any, title: str | None = None) -> Any:
    flag = f"--{name.replace('_', '-')}"
    flags = [f"{flag}/--no-{flag[2:]}"] if annotation is bool else [flag, *([_SHORT[name]] if name in _SHORT else [])]
    complete = completing(values_of(name, field))
    return typer.Option(*flags, help=about(field), show_default=False, autocompletion=complete, rich_help_panel=title)


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


@contextmanager
def run_folder(folder: Path | None, command: str, wait: bool) -> Iterator[Path]:
    """Lock the folder of this run, by default a new one below runs/.

    After Ctrl-C, the error says what is saved and how to resume.
    """
    named = folder is not None
    with ExitStack() as stack:
        if folder is not None:
            tell = (lambda who: note.print(f"waiting for {who}", markup=False)) if wait else None
            stack.enter_context(hold(folder, command, wait=tell))
        else:
            folder = stack.enter_context(_new_folder(command))
        try:
            yield folder
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(_stopped(folder, named, str(stop))) from stop


@contextmanager
def _new_folder(command: str) -> Iterator[Path]:
    first = Path("runs") / f"{command.replace(' ', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    with ExitStack() as stack:
        for number in count(1):  # several runs may start in the same second
            made = first if number == 1 else first.with_name(f"{first.name}-{number}")
            with suppress(FileExistsError):
                stack.enter_context(hold(made, command, new=True))
                break
        yield made


def _stopped(folder: Path, named: bool, saved: str) -> str:
    """What is saved and the command to resume; for nested folders, those of the innermost."""
    if saved.startswith("stopped"):
        return saved
    if not (folder / RUN).exists():
        return "stopped before anything was saved"
    words = shlex.join(["rlab", *sys.argv[1:], *([] if named else ["--out", str(folder)])])
    return f"stopped; {saved or f'finished work is saved in {folder}'}; resume with: {words}"


def tell_data(understood: Understood) -> None:
    """Print what was understood of the data and the model."""
    out.print(plain(understood), soft_wrap=True)
