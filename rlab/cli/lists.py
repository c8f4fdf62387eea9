"""`rlab agents`, `rlab examples` and `rlab filters`: what the package holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.speak import out
from rlab.errors import OptionError
from rlab.filters.base import GRADIENTS
from rlab.policies.auto import card, shipped
from rlab.present.table import Table, plain, terminal
from rlab.results.tables import filters_table
from rlab.storage.config import did_you_mean
from rlab.storage.files import write_new
from rlab.training.page import card_facts

_PACKAGE = Path(__file__).parent.parent
FOLDERS = ("examples", "agents")  # of the repository


def agents(
    name: Annotated[str | None, typer.Argument(help="Name or .safetensors file, to show its full card")] = None,
) -> None:
    """List the priors and agents in the package; `--policy auto` uses the prior for your data, if there is one."""
    names = list(shipped())
    if name is None:
        keys = ("kind", "trained on", "models")
        rows = [[agent, *(_text(card(agent).get(key, "")) for key in keys)] for agent in names]
        out.print(terminal(Table(["name", *keys], rows, words=4)))
        out.print("The whole card, with what training never saw: [bold]rlab agents NAME[/bold].")
        return
    is_file = name.endswith(".safetensors")
    if not is_file and name not in names:
        raise OptionError(f"there is no agent {name!r}: there are {', '.join(names)}, or name a .safetensors file")
    facts = card_facts(Path(name)) if is_file else card(name)
    rows = [[key, _text(value)] for key, value in facts.items()]
    out.print(terminal(Table(["agent", name], rows, words=2)))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def examples(
    name: Annotated[str | None, typer.Argument(help="Example to write to a file")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (default: the example's name in the current folder)"),
    ] = None,
) -> None:
    """List the examples and training configurations in the package, or write the one called NAME to a file."""
    found = example_files()
    if name is None:
        out.print(terminal(Table(["name", "content"], [[key, _about(path)] for key, path in found.items()], words=2)))
        out.print("Write an example: [bold]rlab examples NAME[/bold]. In agents/, enter your own models and data.")
        return
    hits = [key for key in found if name in (key, Path(key).name, Path(key).stem)]
    if len(hits) != 1:
        raise OptionError(f"there is no example {name!r}.{did_you_mean(name, found, 0.5)} There are {', '.join(found)}")
    file = Path(hits[0]) if file is None else file
    write_new(file, found[hits[0]].read_text(encoding="utf-8"))
    out.print(f"Wrote [bold]{plain(file)}[/bold]", soft_wrap=True)


def example_files() -> dict[str, Path]:
    """Examples by name; an installed package has them below assets, a clone beside the package."""
    inside = _PACKAGE / "assets" / FOLDERS[0]
    home = inside.parent if inside.is_dir() else _PACKAGE.parent
    paths = [path for folder in FOLDERS for path in sorted((home / folder).glob("*.*")) if path.is_file()]
    return {path.relative_to(home).as_posix(): path for path in paths}


def _about(path: Path) -> str:
    """The title: a file's first line, or that of a notebook's first cell."""
    with path.open(encoding="utf-8") as file:
        line: str = json.load(file)["cells"][0]["source"][0] if path.suffix == ".ipynb" else file.readline()
    return line.strip(' #"\n')


def filters(
    rank: Annotated[
        int | None, typer.Option(min=1, max=3, help="Only filters for signals (1), images (2) or video (3)")
    ] = None,
) -> None:
    """List the built-in filters, their severities and what they imitate."""
    out.print(terminal(filters_table(rank)))
    out.print(
        "Write name, name@severity, name@0.1,0.3 (two entries), name@0.1*3 (three draws), or your own module:function. "
        "Filters that add noise also take name@20dB (signal-to-noise ratio) and name@0.1mV (the data's unit)."
    )
    out.print(
        "Palettes with a name: clinical (the default for ECG), recorder (whole records), audio (the default for "
        "sound), corruptions (the common corruptions at level 3), paper (the papers' four), nstdb:FOLDER (recorded noise). "
        "limb_lead_reversal, _ra_ll and _la_ll swap cables of records with named limb leads."
    )
    for name, about in GRADIENTS.items():
        out.print(f"With --surrogate MODEL you can also use {name}@0.01: {about}.")
