"""`rlab examples`: the files of the repository's folders `examples` and `agents`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.errors import OptionError
from rlab.present.table import Table, plain, terminal
from rlab.storage.config import did_you_mean
from rlab.storage.files import write_new

_PACKAGE = Path(__file__).parent.parent
FOLDERS = ("examples", "agents")


def command(
    name: Annotated[str | None, typer.Argument(help="Example to write to a file")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write (default: the example's name in the current folder)"),
    ] = None,
) -> None:
    """List the examples and training configurations in the package, or write the one called NAME to a file."""
    found = examples()
    if name is None:
        out.print(terminal(Table(["name", "content"], [[key, _about(path)] for key, path in found.items()], words=2)))
        out.print("Write an example: [bold]rlab examples NAME[/bold]. In agents/, enter your own models and data.")
        return
    hits = [key for key in found if name in (key, Path(key).name, Path(key).stem)]
    if len(hits) != 1:
        raise OptionError(f"there is no example {name!r}.{did_you_mean(name, found, 0.5)} There are {', '.join(found)}")
    file = Path(hits[0]) if file is None else file
    write_new(file, found[hits[0]].read_text(encoding="utf-8"))
    out.print(f"Wrote [bold]{plain(file)}[/bold]", highlight=False, soft_wrap=True)


def examples() -> dict[str, Path]:
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
