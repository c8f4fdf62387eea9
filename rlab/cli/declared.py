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
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from typer.models import ArgumentInfo

from rlab.cli.completion import DEMOS, completing, values_of
from rlab.cli.spoken import grouped, spoken
from rlab.cli.spoken import note as note
from rlab.cli.spoken import out as out
from rlab.data.batch import Samples
from rlab.data.load import DataOptions
from rlab.errors import FolderError, InputError, OptionError
from rlab.present.table import plain
from rlab.runs.executor import place
from rlab.runs.inputs import relabelled
from rlab.runs.options import RunOptions
from rlab.runs.sharing import WorkerOptions
from rlab.runs.understood import Understood
from rlab.storage.config import Options, check, read_config
from rlab.storage.ledger import LEDGER
from rlab.storage.lock import hold
from rlab.storage.outside import is_text, parse_yaml, short
from rlab.victims.base import Victim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model


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
    "records, a folder of clips, images in .parquet or .tar shards, CIFAR-10 binary batches, or demo:digits, demo:ecg, demo:clips"
)
_SHORT = {"palette": "-p"}
_NESTED: dict[str, tuple[type[Options], str, str]] = {
    "model": (ModelOptions, "name", "-M"),
    "data": (DataOptions, "path", "-D"),
}
_OWN_FLAGS: dict[str, dict[str, str]] = {
    "model": {"batch_size": "chunk"} | {name: name for name in ("device", "timeout", "rate", "price", "max_cost")},
    "data": {name: name for name in ("labels", "size", "limit")},
}  # fields with a flag besides -M and -D


def declared(kind: type[Options], without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of `kind` and call it with the checked options; fields in `without` get no flag."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        call = grouped(command)
        own = [p for p in inspect.signature(call).parameters.values() if p.name != "options"]
        generated = [p for p in _parameters(kind, without) if p.name not in {parameter.name for parameter in own}]

        def run(**words: Any) -> None:
            mine = {p.name: words.pop(p.name) for p in own}
            call(options=gather(kind, words), **mine)

        first = [p for p in own if _is_argument(p)]  # positional order: the command's own arguments, then DATA
        rest = [p for p in own if not _is_argument(p)]
        run.__signature__ = inspect.Signature([*first, *generated, *rest])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return spoken(run)

    return decorate


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(how, ArgumentInfo) for how in get_args(parameter.annotation)[1:])


def gather(kind: type[Options], words: Mapping[str, Any], what: str = "the configuration") -> Any:
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
    return check(kind, values | flags, what)


def _merged(
    values: dict[str, Any], name: str, key: str, fields: dict[str, Any], kind: type[Options], config: Path | None
) -> dict[str, Any]:
    """Merge the fields of model or data on the command line over the file's."""
    before = values.get(name) or {}
    if not isinstance(before, str | dict):
        raise OptionError(f"expected '{name}:' of {config} to be a {key} or fields, got {before!r}")
    whole = ({key: before} if isinstance(before, str) else before) | fields
    if (whole and key not in whole) or (not whole and kind.model_fields[name].is_required()):
        raise OptionError(
            f"expected {'a model' if name == 'model' else name}: rlab COMMAND MODEL DATA, or a --config file with '{name}:'"
        )
    return values | {name: whole} if whole else values


def _parameters(kind: type[Options], without: Sequence[str]) -> Iterator[inspect.Parameter]:
    for name in _NESTED:
        if name in kind.model_fields:
            kinds, demos = {"model": MODEL, "data": DATA}[name], completing(DEMOS)
            yield _parameter(name, str, typer.Argument(help=kinds, show_default=False, autocompletion=demos))
    if "config" not in without:
        overridden = "YAML or TOML file; command-line options override it"
        yield _parameter("config", Path, typer.Option("--config", "-c", help=overridden))
    for name, field in kind.model_fields.items():
        if name not in _NESTED and name not in without and (kind_of_flag := _flag_type(field)) is not None:
            yield _parameter(name, kind_of_flag, _option(name, field, kind_of_flag))
    for name, (section, _, _) in _NESTED.items():
        if name in kind.model_fields:
            for own, key in _OWN_FLAGS[name].items():
                if own in without:
                    continue
                yield _parameter(own, str, _option(own, section.model_fields[key], str))
            yield _parameter(f"{name}_option", list[str], option_flag(name))


_EXAMPLE = {"model": "-M mean=[0.5,0.5,0.5] -M outputs=logits", "data": "-D frames=16"}


def option_flag(name: str) -> Any:
    """The flag -M or -D."""
    further = f"Further {name} options, e.g. {_EXAMPLE[name]}; the keys are:"
    return typer.Option(f"--{name}-option", _NESTED[name][2], metavar="KEY=VALUE", help=further)


def option_keys(name: str) -> Iterator[tuple[str, str]]:
    """The keys of -M or -D that have no flag of their own, with their descriptions."""
    section, own, _ = _NESTED[name]
    for key, field in section.model_fields.items():
        if key != own and key not in _OWN_FLAGS[name].values():
            yield key, about(field)


def _parameter(name: str, annotation: Any, how: Any) -> inspect.Parameter:
    kind = Annotated[annotation | None, how]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def flag_of(kind: type[Options], name: str) -> Any:
    field = kind.model_fields[name]
    return _option(name, field, _flag_type(field))


def _option(name: str, field: FieldInfo, annotation: Any) -> Any:
    flag = f"--{name.replace('_', '-')}"
    flags = [f"{flag}/--no-{flag[2:]}"] if annotation is bool else [flag, *([_SHORT[name]] if name in _SHORT else [])]
    complete = completing(values_of(name, field))
    return typer.Option(*flags, help=about(field), show_default=False, autocompletion=complete)


def about(field: FieldInfo) -> str:
    """A field's description as the help of its flag: with a capital, unless it starts with a value such as module:function."""
    text = (field.description or "").strip()
    return text if ":" in text.partition(" ")[0][:-1] else text[:1].upper() + text[1:]


def _flag_type(field: FieldInfo) -> Any | None:
    """The type of a field's flag; None for fields that only a file can hold, such as a section."""
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not NoneType]
    if any(get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, Options)) for kind in kinds):
        return None
    if any(get_origin(kind) is tuple and get_args(kind)[:1] in ((Any,), (str,)) for kind in kinds):
        return list[str]
    return kinds[0] if len(kinds) == 1 and kinds[0] in (bool, int, float) else str


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return [kind for part in get_args(annotation) for kind in _alternatives(part)]
    return [str] if get_origin(annotation) is Literal else [annotation]


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
    if not (folder / LEDGER).exists():
        return "stopped before anything was saved"
    words = shlex.join(["rlab", *sys.argv[1:], *([] if named else ["--out", str(folder)])])
    return f"stopped; {saved or f'finished work is saved in {folder}'}; resume with: {words}"


def prepare(options: RunOptions, stream: bool = False) -> tuple[Any, Any, Victim]:
    """Load data and model and fill in defaults, and print them; with `stream`, large data stay on disk."""
    model = here = options.model
    if isinstance(options, WorkerOptions):
        model, here = place(options, options.model)
    data = options.suited_data()
    batch: Samples = data.open() if stream else data.load()
    filled, defaulted = options.filled(batch)
    victim = load_model(here, batch.bounds)
    batch = relabelled(batch, victim.own_classes)
    tell_data(Understood(batch, (victim,), defaulted))
    return filled.model_copy(update={"model": model, "data": data}), batch, victim


def tell_data(understood: Understood) -> None:
    """Print what was understood of the data and the model."""
    out.print(plain(understood), soft_wrap=True)
