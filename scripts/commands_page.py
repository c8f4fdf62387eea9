"""Hook for `mkdocs build`: generate the list of commands in docs/commands.md from the commands themselves."""

from __future__ import annotations

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
    """Yield every command with the words that call it, without those that only have commands of their own."""
    return ((name, command) for name, command in every_command() if not hasattr(command, "commands"))


def every_command() -> Iterator[tuple[str, Any]]:
    import typer
    import typer.main

    from rlab.cli.app import COMMANDS, load_command
    from rlab.cli.help import Command

    for name in COMMANDS:
        app = load_command(name)
        if not isinstance(app, typer.Typer):
            called, app = app, typer.Typer(add_completion=False)
            app.command(name, cls=Command)(called)
        command: Any = typer.main.get_command(app)
        yield name, command
        yield from ((f"{name} {word}", each) for word, each in getattr(command, "commands", {}).items())


def _section(name: str, command: Any) -> Iterator[str]:
    from rlab.cli.help import EXAMPLES, grouped_rows, usage_words

    yield f"## rlab {name}"
    yield cleandoc(command.help or "")
    yield f"    rlab {name} {' '.join(usage_words(command))}"
    yield "\n".join(f"    {words}  # {about}" for words, about in EXAMPLES[name])
    for group, rows in grouped_rows(command).items():
        yield "\n".join([f"| {group.lower()} | meaning |", "|---|---|", *(_row(*row) for row in rows)])


def _row(flags: str, about: str) -> str:
    indent = "&emsp;" if flags.startswith(" ") else ""
    flags, about = (text.strip().replace("|", "\\|") for text in (flags, about))
    return f"| {indent}`{flags}` | {about.replace('<', '&lt;')} |"
