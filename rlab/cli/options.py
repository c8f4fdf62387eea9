"""The options that several commands share, and how they become a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console

from rlab.errors import InputError

if TYPE_CHECKING:
    from rlab.data.batch import Batch
    from rlab.runs.config import RunOptions
    from rlab.victims.base import Victim

DEFAULT_POLICY = "auto"  # rlab.core.defaults.POLICY, without its imports

Model = Annotated[str | None, typer.Argument(help="The model, see below.", show_default=False)]
Data = Annotated[str | None, typer.Argument(help="The data, see below.", show_default=False)]
Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML or TOML file; options given here go before it.")
]
PaletteOption = Annotated[
    list[str] | None,
    typer.Option(
        "--palette",
        "-p",
        help="A filter, repeated or with spaces between: 'gaussian_noise@0.2 dead_pixel'. `rlab filters` lists them.",
    ),
]
Patch = Annotated[str | None, typer.Option(help="Side of a patch, or one an axis: 8 or 2,8,8.")]
Goal = Annotated[
    str | None, typer.Option(help="untargeted, targeted:CLASS, below:PROBABILITY, multilabel or multilabel:LABEL.")
]
Budget = Annotated[
    int | None, typer.Option(help="Most queries a sample; prediction, search, cleanup and verification count.")
]
PolicyOption = Annotated[
    str | None, typer.Option(help="Who proposes: auto, random, greedy, square, or an agent's .safetensors file.")
]
Keep = Annotated[str | None, typer.Option(help="Keep a proposal if 'better', or 'always'.")]
Cleanup = Annotated[bool | None, typer.Option(help="Give back what is not needed after the flip.")]
Seed = Annotated[int | None, typer.Option(help="Source of all chance.")]
Chunk = Annotated[int | None, typer.Option(help="Samples that step together.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; a new one below runs/ if left out.")]
Labels = Annotated[str | None, typer.Option(help="Labels file: name and label a line.")]
Size = Annotated[int | None, typer.Option(help="Side to which images and frames are resized.")]
Limit = Annotated[int | None, typer.Option(help="At most so many samples.")]
DataOptions = Annotated[
    list[str] | None, typer.Option("--data-option", "-D", help="Further options of the data, e.g. -D frames=16.")
]
ModelOptions = Annotated[
    list[str] | None,
    typer.Option("--model-option", "-M", help="Options of the model, e.g. -M mean=[0.5,0.5,0.5] -M outputs=logits."),
]


def new_folder(what: str) -> Path:
    return Path("runs") / f"{what}-{datetime.now():%Y%m%d-%H%M%S}"


def pairs(words: list[str] | None, flag: str) -> dict[str, Any]:
    """['size=32', 'mean=[.5,.5]'] -> values, read as YAML."""
    found = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"expected {flag} name=value, got {word!r}")
        try:
            found[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(
                f"cannot read the value of {flag} {word!r}: expected a word or a list like [1, 2]"
            ) from None
    return found


def named(name: str | None, key: str, words: list[str] | None, **more: Any) -> dict[str, Any]:
    """What was said on the command line of the model or the data."""
    own = {field: value for field, value in (more | {key: name}).items() if value is not None}
    said = pairs(words, "-M" if key == "name" else "-D") | own  # an option left out does not undo what -D says
    return {field: value for field, value in said.items() if value is not None}


def split(words: list[str] | None) -> list[str] | None:
    return [part for word in words for part in word.split()] if words else None


def numbers(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    try:
        sides = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected a patch like 8 or 2,8,8, got {text!r}") from None
    return sides[0] if len(sides) == 1 else sides


def merge(config: Path | None, **said: Any) -> dict[str, Any]:
    """The file's values under those of the command line; model and data are merged field by field."""
    from rlab.runs.config import read_config

    values = read_config(config) if config else {}
    for name, value in said.items():
        if name in ("model", "data"):
            before = values.get(name) or {}
            key = "name" if name == "model" else "path"
            if not isinstance(before, str | dict):
                raise InputError(f"expected '{name}:' of {config} to be a {key} or fields, got {before!r}")
            values[name] = ({key: before} if isinstance(before, str) else before) | value
            if key not in values[name]:
                raise InputError(f"expected a {name}: rlab COMMAND MODEL DATA, or a --config file with '{name}:'")
        elif value is not None:
            values[name] = value
    return values


_PLAIN = ("goal", "budget", "policy", "keep", "cleanup", "seed", "chunk")


def gathered(said: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command by their names, as its first line gives them with locals(), over its --config file."""
    about_data = {name: said.get(name) for name in ("labels", "size", "limit")}
    return merge(
        said["config"],
        model=named(said["model"], "name", said["model_option"]),
        data=named(said["data"], "path", said["data_option"], **about_data),
        palette=split(said.get("palette")),
        patch=numbers(said.get("patch")),
        **{name: said.get(name) for name in _PLAIN},
    )


def prepare(values: dict[str, Any], out: Console) -> tuple[RunOptions, Batch, Victim]:
    """Configuration, data and model, with what was defaulted and what was left out said aloud."""
    from rlab.runs.config import make_config

    run = make_config(values)
    batch = run.data.load()
    run, defaulted = run.filled(batch)
    victim = run.model.load(batch)
    out.print(
        f"{len(batch)} {batch.kind} samples of size {'×'.join(map(str, batch.size))}, {batch.x.shape[1]} channels"
    )
    if batch.left_out:
        out.print(batch.losses(), highlight=False, markup=False)
    if defaulted:
        told = "; ".join(
            f"{name} {' '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in defaulted.items()
        )
        out.print(f"[dim]defaults: {told}[/dim]", highlight=False)
    return run, batch, victim
