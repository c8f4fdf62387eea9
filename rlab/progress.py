"""A progress bar on standard error for anything that takes a while; silent where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[Any], None]  # called with each finished part, which has a length


def quiet(part: Any) -> None:
    """No bar."""


@contextmanager
def bar(total: int, title: str = "attacking") -> Iterator[Progress]:
    """A bar over `total` samples; the running success rate and queries stand beside it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with RichProgress(*columns, console=console, disable=not console.is_terminal, transient=False) as shown:
        task = shown.add_task(title, total=total, note="")

        def advance(part: Any) -> None:
            note = getattr(part, "note", "")
            shown.update(task, advance=len(part), note=note() if callable(note) else note)

        yield advance
