"""`rlab agents`: the agents that come with the package, and what each was trained on."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rlab.errors import InputError


def agents(name: Annotated[str | None, typer.Argument(help="One of them, for its whole card.")] = None) -> None:
    """List the agents that come with the package; `--policy auto` takes the one for your data."""
    from rlab.policies.auto import card, shipped

    out, there = Console(), shipped()
    if name is not None and name not in there:
        raise InputError(f"there is no agent {name!r}: there are {', '.join(there)}")
    wide = Table(box=None, show_header=name is None)
    if name is None:
        for heading in ("agent", "for", "trained on", "never seen"):
            wide.add_column(heading)
        for one in there:
            about = card(one)
            wide.add_row(one, *(str(about.get(key, "")) for key in ("for", "trained on", "never seen")))
    else:
        for key, value in card(name).items():
            wide.add_row(f"[bold]{key}[/bold]", ", ".join(value) if isinstance(value, list) else str(value))
    out.print(wide)
