"""`rlab init`: write a commented configuration for your data, from the descriptions of the options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rlab.cli.declared import declared, out, tell_data
from rlab.data.batch import UNBOUNDED, Batch
from rlab.data.fields import ACCEPTED
from rlab.data.load import DEMO, DataOptions, find_loader
from rlab.diagnosis import data_findings, findings_table
from rlab.errors import DataError, InputError
from rlab.present.table import plain, terminal
from rlab.runs.options import RunOptions
from rlab.runs.understood import Understood
from rlab.storage.config import Options
from rlab.storage.files import write_new
from rlab.victims.options import ModelOptions

FIRST = {"limit": 32, "shuffle": True}  # a first run is small and has all classes
_WIDE, _MOST = 120, 20  # characters per line, classes to name


class InitOptions(Options):
    data: DataOptions | None = None


@declared(InitOptions, without=("config",))
def command(
    options: InitOptions,
    model: Annotated[
        str | None,
        typer.Option(help="Model to write into the file; it is not queried (default for demo data: the demo model)"),
    ] = None,
    file: Annotated[Path, typer.Option("--out", "-o", help="File to write")] = Path("rlab.yaml"),
) -> None:
    """Inspect your data, without querying a model, and write a commented configuration for `rlab attack --config`.

    DATA defaults to the .npz file in the current folder, or else to the folder itself. An existing file is not overwritten.
    """
    data = options.data or DataOptions(path=_at_hand())
    if data.limit is None:
        data = data.model_copy(update=FIRST)
    batch = data.load()
    tell_data(Understood(batch))
    if findings := data_findings(batch):
        out.print(terminal(findings_table(findings)))
    name = data.path if model is None and data.path.startswith(DEMO) else model
    write_new(file, configuration(data, batch, ModelOptions(name=name) if name else None))
    then = "Next:" if name else "Enter your model there, then:"
    out.print(f"Wrote [bold]{plain(file)}[/bold]. {then}", highlight=False)
    for verb in ("doctor", "attack"):
        out.print(f"  rlab {verb} --config {plain(file)}", highlight=False, soft_wrap=True)


def _at_hand() -> str:
    files = sorted(map(str, Path().glob("*.npz")))
    if len(files) > 1:
        raise DataError(f"there are several .npz files here, {', '.join(files[:5])}: name one, rlab init {files[0]}")
    if files:
        return files[0]
    try:
        find_loader(".")
    except InputError as error:
        raise DataError(f"{error}, or name your data: rlab init DATA, e.g. rlab init demo:digits") from error
    return "."


def configuration(data: DataOptions, batch: Batch, model: ModelOptions | None) -> str:
    """The text of the file; options without a value become comments."""
    several = batch.y.dim() > 1  # several labels can be true at once
    named = (model or ModelOptions(name="my_module:function")).model_copy(update={"multilabel": several})
    attack, _ = RunOptions(model=named, data=data, goal="multilabel" if several else "untargeted").filled(batch)
    applied = ("path", "kind", "limit", "shuffle", *ACCEPTED[find_loader(data.path, data.kind)])
    sections = {"model": _lines(named, _changed(named)), "data": _lines(data, _changed(data), applied)}
    written = {name: [f"{name}:", *(f"  {line}" for line in lines), ""] for name, lines in sections.items()}
    if model is None:
        commented = [f"# {line}" for line in written["model"][:-1]]
        written["model"] = ["# Enter your model here and remove the # from these lines:", *commented, ""]
    lines = [
        "# Configuration of rlab attack. Command-line options override this file.",
        *(f"# {_printable(line)}" for line in described(batch)),
        "# Lines like '# key: ...' describe options that are not set.",
        "",
        *written["model"],
        *written["data"],
        *_lines(attack, attack.model_copy(update={"chunk": None}).plain(), RunOptions.model_fields.keys() - sections),
    ]
    return "\n".join(lines) + "\n"


def described(batch: Batch) -> Iterator[str]:
    """The size, values and classes of the data in words."""
    shape = "×".join(map(str, batch.x.shape[1:]))
    rate = f", {batch.rate:g} per second" if batch.rate else ""
    yield f"Inspected {len(batch)} {batch.kind} samples of shape {shape} (channels first){rate}."
    least, most = (float(end) for end in batch.x.aminmax())
    bounds = "no bounds" if batch.bounds == UNBOUNDED else f"bounds {batch.bounds[0]:g} and {batch.bounds[1]:g}"
    yield f"Values from {least:.4g} to {most:.4g}{batch.unit and f' {batch.unit}'}, {bounds}."
    labels = batch.y.any(0).nonzero().flatten().tolist() if batch.y.dim() > 1 else batch.y.unique().tolist()
    more = f" and {len(labels) - _MOST} more" if len(labels) > _MOST else ""
    yield f"Classes: {', '.join(map(batch.label_name, labels[:_MOST]))}{more}."


def _changed(options: Options) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    return options.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


def _lines(options: Options, values: Mapping[str, Any], names: Collection[str] | None = None) -> Iterator[str]:
    """`key: value` for fields in `values`, `# key: description` for the others; `names` limits the fields."""
    for name, field in type(options).model_fields.items():
        if names is not None and name not in names:
            continue
        if name in values:
            written = yaml.safe_dump([values[name]], default_flow_style=True, width=10**6, allow_unicode=True)
            line = f"{name}: {written.strip()[1:-1]}"
            about = f"# {field.description}"
            yield from [f"{line}  {about}"] if len(line + about) < _WIDE else [about, line]
        else:
            yield f"# {name}: {field.description}"


def _printable(text: str) -> str:
    """Text for a comment: one line, without the control characters that YAML refuses."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
