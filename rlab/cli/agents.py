"""`rlab agents`: the priors and agents in the package, and what each was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlab.cli.declared import out
from rlab.errors import OptionError
from rlab.policies.auto import card, shipped
from rlab.present.table import Table, terminal
from rlab.training.page import card_facts


def command(
    name: Annotated[str | None, typer.Argument(help="Name or .safetensors file, to show its full card")] = None,
) -> None:
    """List the priors and agents in the package; `--policy auto` picks the one for your data."""
    names = list(shipped())
    if name is None:
        keys = ("kind", "trained on", "models")
        rows = [[agent, *(_text(card(agent).get(key, "")) for key in keys)] for agent in names]
        out.print(terminal(Table(["name", *keys], rows, words=4)))
        out.print("The whole card, with what training never saw: [bold]rlab agents NAME[/bold].", highlight=False)
        return
    is_file = name.endswith(".safetensors")
    if not is_file and name not in names:
        raise OptionError(f"there is no agent {name!r}: there are {', '.join(names)}, or name a .safetensors file")
    facts = card_facts(Path(name)) if is_file else card(name)
    rows = [[key, _text(value)] for key, value in facts.items()]
    out.print(terminal(Table(["agent", name], rows, words=2)))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
