"""Output of a command: text for people, one JSON object with --json, only errors with --quiet."""

from __future__ import annotations

import inspect
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from rlab.errors import Notice
from rlab.progress import silent
from rlab.redact import redact
from rlab.victims.limit import query_limit


class _Console(Console):
    """Prints text without secrets."""

    def print(self, *objects: Any, **style: Any) -> None:
        super().print(*map(redact, objects), **style)

    def on_broken_pipe(self) -> None:
        """Rich would end the command with exit code 1; `rlab.cli.main` decides."""
        raise


out, note = _Console(highlight=False), _Console(stderr=True, highlight=False)
_object: ContextVar[TextIO | None] = ContextVar("json", default=None)  # where --json writes
_AS_JSON = "Print the results as one JSON object, and other text on standard error"
_QUIET = "Print only errors and the JSON object"
_FLAGS = {
    "as_json": Annotated[bool, typer.Option("--json", help=_AS_JSON)],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help=_QUIET)],
}
_LIMIT = Annotated[
    int | None,
    typer.Option("--max-queries", min=1, help="Stop before the models get more queries; repeat the command to go on"),
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one flag per field of each parameter that is a dataclass, and call it with the dataclass."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups = {p.name: p.annotation for p in parameters if isinstance(p.annotation, type) and is_dataclass(p.annotation)}
    flags: list[inspect.Parameter] = []
    for parameter in parameters:
        if parameter.name in groups:
            own = inspect.signature(groups[parameter.name], eval_str=True).parameters.values()
            flags += [flag.replace(kind=flag.KEYWORD_ONLY) for flag in own]
        else:
            flags.append(parameter.replace(kind=parameter.KEYWORD_ONLY))

    def run(**words: Any) -> None:
        made = {name: kind(**{f.name: words.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**made, **words)

    run.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def spoken(command: Callable[..., None], queries: bool = False) -> Callable[..., None]:
    """Give a command --json and --quiet, and --max-queries if it queries models; it passes its results to `summary`."""
    command = grouped(command)

    def run(**words: Any) -> None:
        most = words.pop("max_queries", None)
        with speaking(words.pop("as_json"), words.pop("quiet")), query_limit(most) if most else nullcontext():
            command(**words)

    own = inspect.signature(command).parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=how)
        for name, how in _FLAGS.items()
    ]
    if queries:
        more.append(inspect.Parameter("max_queries", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_LIMIT))
    run.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def querying(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that queries models its common flags."""
    return spoken(command, queries=True)


@contextmanager
def speaking(as_json: bool, quiet: bool) -> Iterator[None]:
    """Reserve standard output for the JSON object; everything else goes to standard error."""
    hushed, where = silent.set(quiet), _object.set(sys.stdout if as_json else None)
    out.quiet = note.quiet = quiet
    try:
        with ExitStack() as stack:
            if as_json:
                stack.enter_context(redirect_stdout(sys.stderr))
            if quiet:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore", Notice)
            yield
    finally:
        silent.reset(hushed)
        _object.reset(where)
        out.quiet = note.quiet = False


def summary(**figures: Any) -> None:
    """Write the command's results as JSON, if --json is set."""
    if (file := _object.get()) is not None:
        file.write(json.dumps(redact(_plain(figures)), allow_nan=False, default=str) + "\n")


def _plain(value: Any) -> Any:
    """NaN and infinity become null, since JSON has neither."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
