"""Output of a command: text for people, one JSON object with --json, only errors with --quiet."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from rlab.errors import Notice
from rlab.present.table import Table, plain, records, terminal, text
from rlab.progress import silent
from rlab.redact import redact

if TYPE_CHECKING:  # pages import matplotlib, which is slow
    from rlab.present.page import Block, Page

ROWS = 20  # shown of each table


class _Console(Console):
    """Prints text without secrets."""

    def print(self, *objects: Any, **style: Any) -> None:
        super().print(*map(redact, objects), **style)

    def on_broken_pipe(self) -> None:
        """Rich would end the command with exit code 1; `rlab.cli.main` decides."""
        raise


out, note = _Console(highlight=False), _Console(stderr=True, highlight=False)
_object: ContextVar[TextIO | None] = ContextVar("json", default=None)  # where --json writes


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


def tell_page(page: Page, rows: int = ROWS, brief: bool = False) -> list[dict[str, Any]]:
    """Print the verdict, figures, tables and sentences of a page; -> tables and facts for `summary`.

    A `brief` print has the first section alone, without what the page folds away.
    """
    from rlab.present.page import Facts, Text

    told: list[dict[str, Any]] = []
    if page.lead:
        out.print(plain(page.lead))
    if page.numbers:
        figures = [[number.name, text(number.value) + number.unit] for number in page.numbers]
        out.print(terminal(Table(["figure", "measured"], figures)))
    for section in page.sections[: 1 if brief else None]:
        blocks = list(_unfolded(section.blocks, folded=not brief))
        if any(isinstance(block, Table | Facts | Text) for block in blocks):
            out.print(f"[bold]{plain(section.title)}[/bold]")
        for block in blocks:
            if isinstance(block, Table):
                out.print(terminal(block.first(rows)))
                told.append({"section": section.title, "title": block.title, "rows": records(block)})
            elif isinstance(block, Facts):
                told.append({"section": section.title, "facts": dict(block.facts)})
                out.print(terminal(Table(["", ""], [[name, value] for name, value in block.facts.items()], words=2)))
            elif isinstance(block, Text):
                out.print(f"[dim]{plain(block.text)}[/dim]")
    if page.verdict is not None:
        colour = {"pass": "green", "warn": "yellow"}.get(page.verdict.tone, "red")
        out.print(f"[{colour}]{page.verdict.word}[/]: {plain(page.verdict.sentence)}")
    return told


def _unfolded(blocks: Sequence[Block], folded: bool) -> Iterator[Block]:
    """Blocks, including those that a page shows side by side and, if `folded`, those that it folds away."""
    from rlab.present.page import Beside, Folded

    for block in blocks:
        if isinstance(block, Beside) or (folded and isinstance(block, Folded)):
            yield from _unfolded(block.blocks, folded)
        else:
            yield block
