"""The commands of `rlab`: one file each, imported when it is called, so that `rlab --help` is quick."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.main

from rlab.errors import Notice

_USUAL = warnings.formatwarning
COMMANDS = {
    "demo": "Attack a signal, an image and a clip classifier on embedded data.",
    "init": "Look at your data and write a commented configuration for them.",
    "doctor": "Check model, data and palette before a budget is spent.",
    "attack": "Find, for every sample, few patches whose distortion makes the model err.",
    "show": "Show what a run found: summary, samples, where its pictures are.",
    "compare": "Run several attacks on the same model, samples and budget.",
    "explain": "Show where the model's decisions rest: a heat map and a mask for every sample.",
    "benchmark": "Make robustness benchmarks, verify them, grade models on them.",
    "harden": "Train a torch model on what fools it, and measure it before and after.",
    "audit": "The whole pipeline from one declared file, judged by its requirements.",
    "report": "Make one HTML page of a finished run.",
    "serve": "Look at runs in a browser: a local server.",
    "repair": "Mend a damaged run folder, as far as it can be mended.",
    "train": "Train an agent on models you can query.",
    "examples": "List the examples that come with the package, or write one to a file.",
    "agents": "List the agents that come with the package.",
    "filters": "List the built-in filters, their severities and what they imitate.",
}
_HELP = """What is the least that has to go wrong for my model to be wrong, and where does it look?

Start with **rlab demo**. **rlab init DATA** writes a configuration for your own data. Check model and data with
**rlab doctor MODEL DATA**, and attack with **rlab attack MODEL DATA**. Models and data
are named the way you have them; `rlab attack --help` lists how."""


Guard = Callable[[Callable[..., Any]], Callable[..., None]]


def make_app(words: Sequence[str], guarded: Guard) -> Callable[[Sequence[str]], Any]:
    """The app for this command line: of the command that is called its options, of the others their names.

    What a command does runs inside `guarded`.
    """
    warnings.formatwarning = _as_note  # type: ignore[assignment]
    app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown", help=_HELP)
    app.callback(invoke_without_command=True)(_root)
    begun = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")  # a shell asks what may follow
    given = begun.split()[1:] if "_RLAB_COMPLETE" in os.environ else words
    called = next((word for word in given if not word.startswith("-")), "")
    for name, about in COMMANDS.items():
        if name != called:
            app.command(name, help=about)(_not_called)
            continue
        module = importlib.import_module(f"rlab.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)
    made: Any = typer.main.get_command(app)
    if called in COMMANDS:
        command = made.commands[called]
        for each in getattr(command, "commands", {called: command}).values():
            each.callback = guarded(each.callback)
    return lambda words: made(words, prog_name="rlab")


def _as_note(message: Warning | str, category: type[Warning], *where: Any) -> str:
    """What rlab has to tell is one line; what others warn of looks as ever."""
    return f"note: {message}\n" if issubclass(category, Notice) else _USUAL(message, category, *where)


def _not_called() -> None:
    """Stands for a command whose options nobody asks about now."""


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; of any command.")] = False,
) -> None:
    if version:
        from rlab import __version__

        typer.echo(f"rlab {__version__}")
        raise typer.Exit
