"""Progress of long work: a bar in a terminal, one updated line in a notebook, a few lines in a log.

Only settled samples count, because nobody knows how many queries the others still need. The time left is estimated from
finished parts alone: within a part the easy samples settle first, which would make the estimate too short and then let it grow.
"""

from __future__ import annotations

import html
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[Sized], None]  # called with finished parts (the length is the samples) and parts under way
LINE, GROWTH = 10.0, 0.25  # a log line comes after this many seconds, and then after this share of the time so far
REFRESH = 0.2  # seconds between two updates of the display
ENOUGH, SHARE = 20, 0.1  # the time left is shown after this many samples, or this share of all where that is fewer


@dataclass(frozen=True)
class Tally:
    """Counts over attacked samples; `done` counts those that have settled."""

    done: int = 0
    flipped: int = 0
    held: int = 0
    failed: int = 0
    queries: int = 0
    best: tuple[float, ...] = ()  # distances of the best flips
    distance: str = "L2"

    def __add__(self, other: Tally) -> Tally:
        names = ("done", "flipped", "held", "failed", "queries", "best")
        return replace(other, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def __str__(self) -> str:
        counts = f"{self.flipped} flipped, {self.held} held, {self.failed} failed"
        return counts + (f", median {self.distance} {statistics.median(self.best):.3g}" if self.best else "")


@runtime_checkable
class Tallied(Protocol):
    """A part that counts its samples."""

    def tally(self) -> Tally: ...


@runtime_checkable
class Noted(Protocol):
    """A part with a text to show instead of counts."""

    def note(self) -> str: ...


@dataclass(frozen=True)
class UnderWay:
    """A part that is not finished; it is counted only when the display is updated."""

    tally: Callable[[], Tally]

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Said:
    """A text to show while no sample advances."""

    text: str

    def note(self) -> str:
        return self.text

    def __len__(self) -> int:
        return 0


class ProgressState:
    """Counts over the finished parts and the part under way, and the time left."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock, self.began = total, clock, clock()
        self.finished, self.under_way = Tally(), Tally()
        self.recalled = Tally()  # finished by an earlier process
        self.text = ""
        self.end: float | None = None  # when the work should end, by the parts finished so far

    def hear(self, part: Sized) -> None:
        self.text = part.note() if isinstance(part, Noted) else ""
        tally = part.tally() if isinstance(part, Tallied) else Tally()
        if isinstance(part, UnderWay):
            self.under_way = tally
            return
        tally, self.under_way = replace(tally, done=len(part)), Tally()
        self.finished += tally
        if getattr(part, "recalled", False):
            self.recalled += tally
        self._estimate()

    def _estimate(self) -> None:
        made = self.finished.done - self.recalled.done
        if made and made >= min(ENOUGH, SHARE * (self.total - self.recalled.done)):
            now = self.clock()
            self.end = now + (now - self.began) * (self.total - self.finished.done) / made

    @property
    def done(self) -> int:
        return min(self.finished.done + self.under_way.done, self.total)

    def left(self) -> float | None:
        """Seconds left; None before there is an estimate, and when the estimated time is over."""
        return None if self.end is None or self.end < self.clock() else self.end - self.clock()

    def note(self) -> str:
        """The last part's text, or the counts and the speed of the model."""
        now, seconds = self.finished + self.under_way, max(self.clock() - self.began, 1e-9)
        if self.text or not now.queries:
            return self.text
        return f"{now}, {(now.queries - self.recalled.queries) / seconds:,.0f} queries/s"

    def share(self) -> str:
        return f"{self.done:,} of {self.total:,}"

    def times(self) -> str:
        left = self.left()
        return _clock(self.clock() - self.began) + ("" if left is None else f", about {_clock(left)} left")

    def line(self, title: str) -> str:
        parts = (f"{title} {self.share()}", self.note(), self.times())
        return ", ".join(part for part in parts if part)


def _clock(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours}:{minutes % 60:02d}:{int(seconds) % 60:02d}" if hours else f"{minutes}:{int(seconds) % 60:02d}"


def quiet(part: Sized) -> None:
    """Shows nothing."""


silent = ContextVar("silent", default=False)  # true while a command runs with --quiet


@contextmanager
def bar(total: int, title: str = "attacking", clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Show the progress of `total` samples on standard error, or below the cell of a notebook."""
    if silent.get():
        yield quiet
        return
    from rich.console import Console

    console, state = Console(file=sys.stderr), ProgressState(total, clock)
    in_terminal = console.is_terminal and not console.is_dumb_terminal
    display = _cell if console.is_jupyter else _bar if in_terminal else _log
    with display(console, state, title) as show:
        due = clock()

        def advance(part: Sized) -> None:
            nonlocal due
            early = clock() < due
            if early and isinstance(part, UnderWay):
                return
            state.hear(part)
            if not early:
                due = clock() + REFRESH
                show()

        yield advance
        show()


@contextmanager
def _bar(console: Console, state: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    texts = (TextColumn(f"{{task.fields[{name}]}}") for name in ("share", "note", "times"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), *texts)
    with RichProgress(*columns, console=console) as shown:
        task = shown.add_task(title, total=state.total, share="", note="", times="")

        def show() -> None:
            shown.update(task, completed=state.done, share=state.share(), note=state.note(), times=state.times())

        yield show


@contextmanager
def _cell(console: Console, state: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    """One output of the cell, updated in place. Rich's own needs ipywidgets, which few kernels have."""
    from IPython.display import display

    def output() -> dict[str, str]:
        line = state.line(title)
        moving = f'<progress value="{state.done}" max="{max(state.total, 1)}"></progress> {html.escape(line)}'
        return {"text/plain": line, "text/html": moving}

    shown = display(output(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
    yield lambda: shown.update(output(), raw=True)


@contextmanager
def _log(console: Console, state: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    due = state.began + LINE

    def show() -> None:
        nonlocal due
        if (now := state.clock()) >= due:
            due = now + max(LINE, GROWTH * (now - state.began))
            sys.stderr.write(state.line(title) + "\n")
            sys.stderr.flush()

    yield show
