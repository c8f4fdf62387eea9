"""A progress bar on standard error for anything that takes a while; silent where nobody watches."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Progress = Callable[[Any], None]  # called with each finished part, which has a length, and with parts under way


@dataclass(frozen=True)
class UnderWay:
    """A part that is not finished: the words beside the bar change, the bar stays."""

    note: str

    def __len__(self) -> int:
        return 0


def standing(reached: Sequence[float], attacked: int, distance: str = "L2") -> str:
    """How many samples flipped, and the median distance of their best flips so far."""
    best = f", {distance} {statistics.median(reached):.3g}" if reached else ""
    return f"{len(reached)} of {attacked} flipped{best}"


def quiet(part: Any) -> None:
    """No bar."""


@contextmanager
def bar(total: int, title: str = "attacking") -> Iterator[Progress]:
    """A bar over `total` samples; the share flipped and the distance so far stand beside it."""
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
