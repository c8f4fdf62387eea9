"""Hook for `mkdocs build`: generate the list of commands in docs/commands.md from the commands themselves."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return markdown.replace(MARK, commands_text()) if MARK in markdown else markdown


def commands_text() -> str:
    """Return Markdown for every command: its help, arguments and options."""
    return "\n\n".join(part for name, command in commands() for part in _section(name, command)) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that call it."""
    import typer
    import typer.main

    from rlab.cli.app import COMMANDS

    for name in COMMANDS:
        module = importlib.import_module(f"rlab.cli.{name}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            app.command(name)(module.command)
        command: Any = typer.main.get_command(app)
        inner = getattr(command, "commands", {})
        yield from ((f"{name} {word}", each) for word, each in inner.items()) if inner else [(name, command)]


def _section(name: str, command: Any) -> Iterator[str]:
    import click

    context = click.Context(command, info_name=f"rlab {name}")
    yield f"## rlab {name}"
    yield cleandoc(command.help or "")
    yield f"    {' '.join(command.get_usage(context).split()).removeprefix('Usage: ')}"
    rows = [_row(param, context) for param in command.params if not getattr(param, "hidden", False)]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])


def _row(param: Any, context: Any) -> str:
    record = param.get_help_record(context)
    flags, about = record if record else (param.human_readable_name, getattr(param, "help", "") or "")
    flags, about = (" ".join(text.split()).replace("|", "\\|") for text in (flags, about))
    return f"| `{flags}` | {about.replace('<', '&lt;')} |"
