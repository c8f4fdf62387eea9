"""The commands of `rlab`, each in a module that is imported only when it is called, so that `rlab --help` is fast."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
import typer.main

from rlab.cli.help import Command, Group, written_help
from rlab.errors import Notice
from rlab.folders.verbs import VERBS

_USUAL = warnings.formatwarning
TOOLS = {  # commands that leave no run folder
    "init": "Inspect your data and write a commented configuration file.",
    "show": "Show the results of any run: figures, tables and sentences of its page.",
    "report": "Make an HTML page from a finished run, or compare several runs.",
    "serve": "Browse runs in a local web server.",
    "examples": "List the examples in the package, or write one to a file.",
    "agents": "List the priors and agents in the package.",
    "filters": "List the built-in filters, their severities and what they imitate.",
}
GROUPS = {"benchmark": "Make and verify robustness benchmarks, and grade models on them."}  # of several commands
_VERBS = {verb.name.split()[0]: verb.about for verb in VERBS if "--" not in verb.name}
COMMANDS = {**_VERBS, **GROUPS, **TOOLS}
_MODULES = dict.fromkeys(("agents", "examples", "filters"), "lists")  # of commands without a module of their own
_HELP = """What is the smallest change that makes my model fail, and where does my model look?

Start with **rlab demo**. **rlab init DATA** writes a configuration for your own data. Check your model and data with
**rlab doctor MODEL DATA**, then attack with **rlab attack MODEL DATA**. `rlab attack --help` lists
the kinds of models and data."""


Guard = Callable[[Callable[..., Any]], Callable[..., None]]


def make_app(words: Sequence[str], guarded: Guard) -> Callable[[Sequence[str]], Any]:
    """The app for this command line; only the command that is called gets its options. `guarded` wraps its body."""
    warnings.formatwarning = _as_note  # type: ignore[assignment]
    if "_RLAB_COMPLETE" not in os.environ and (text := written_help(words)) is not None:
        return partial(_show_help, text)
    app = typer.Typer(cls=Group, pretty_exceptions_enable=False, rich_markup_mode="markdown", help=_HELP)
    app.callback(invoke_without_command=True)(_root)
    given = words
    if "_RLAB_COMPLETE" in os.environ:  # the shell completes a command
        given = (os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")).split()[1:]
    called = next((word for word in given if not word.startswith("-")), "")
    for name, about in COMMANDS.items():
        if name != called:
            app.command(name, cls=Command, help=about)(lambda: None)  # it is not called
            continue
        command = load_command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command)(command)
    made: Any = typer.main.get_command(app)
    if called in COMMANDS:
        inner = made.commands[called]
        for each in getattr(inner, "commands", {called: inner}).values():
            each.callback = guarded(each.callback)
    return lambda words: made(_repeated(words, "--from") if called == "learn" else words, prog_name="rlab")


def _show_help(text: str, words: Sequence[str]) -> None:
    typer.echo(text)
    raise SystemExit(0)


def load_command(name: str) -> typer.Typer | Callable[..., Any]:
    """The function of a command, or an app of commands; some commands share a module."""
    module = importlib.import_module(f"rlab.cli.{_MODULES.get(name, name)}")
    found: typer.Typer | Callable[..., Any]
    found = getattr(module, "app", None) or getattr(module, name if name in _MODULES else "command")
    return found


def _repeated(words: Sequence[str], flag: str) -> list[str]:
    """Repeat a flag before each of its values: the shell turns `--from runs/*` into one flag and several words."""
    whole, within = list[str](), False
    for word in words:
        whole += [flag] if within and whole[-1] != flag and not word.startswith("-") else []
        whole.append(word)
        within = word == flag or (within and not word.startswith("-"))
    return whole


def _as_note(message: Warning | str, category: type[Warning], *where: Any) -> str:
    """Notices of rlab take one line; other warnings keep Python's format."""
    return f"note: {message}\n" if issubclass(category, Notice) else _USUAL(message, category, *where)


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error, for any command")] = False,
) -> None:
    if version:
        from rlab import __version__

        typer.echo(f"rlab {__version__}")
        raise typer.Exit
