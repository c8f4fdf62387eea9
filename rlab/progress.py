"""Progress of long work: one bar that updates in a terminal and in a notebook, and a line every 10% in a log.

Only settled samples count, because nobody knows how many queries the others still need. The time left is estimated from
finished parts alone: within a part the easy samples settle first, which would make the estimate too short and then let it grow.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass, replace
from typing import Protocol, runtime_checkable

Progress = Callable[[Sized], None]  # called with finished parts (the length is the samples) and parts under way
REFRESH = 0.2  # seconds between two updates of the display
STEP = 0.1  # share of the work between two lines of a log
PATIENCE = 2.0  # seconds before a bar appears for work that is usually quick
ENOUGH, SHARE = 20, 0.1  # the time left is shown after this many samples, or this share of all where that is fewer


@dataclass(frozen=True)
class Tally:
    """Counts over attacked samples that have settled; it is a finished part itself."""

    done: int = 0
    flipped: int = 0
    resisted: int = 0
    skipped: int = 0  # wrong from the start
    failed: int = 0

    def tally(self) -> Tally:
        return self

    def __len__(self) -> int:
        return self.done

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        rare = {"skipped": self.skipped, "failed": self.failed}
        counts = {"flipped": self.flipped, "held": self.resisted} | {name: n for name, n in rare.items() if n}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())


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

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic, unit: str = "samples") -> None:
        self.total, self.clock, self.began, self.unit = total, clock, clock(), unit
        self.finished, self.under_way = Tally(), Tally()
        self.recalled = Tally()  # finished by an earlier process
        self.text, self.said = "", 0  # what to show, and how many texts no sample brought
        self.end: float | None = None  # when the work should end, by the parts finished so far

    def hear(self, part: Sized) -> None:
        self.text = part.note() if isinstance(part, Noted) else ""
        self.said += isinstance(part, Said)
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
        """Seconds left; None before there is an estimate, when the estimated time is over, and at the end."""
        over = self.finished.done >= self.total or self.end is None or self.end < self.clock()
        return None if over or self.end is None else self.end - self.clock()

    def note(self) -> str:
        """The last part's text, or the counts."""
        now = self.finished + self.under_way
        return self.text or (str(now) if any(astuple(now)[1:]) else "")

    def share(self) -> str:
        return f"{self.done:,}/{self.total:,} {self.unit}"

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


silent = ContextVar("silent", default=False)  # true with --quiet or progress=False, and while another bar is shown


@contextmanager
def showing(progress: bool) -> Iterator[None]:
    """Show no bar inside if `progress` is false."""
    before = silent.set(silent.get() or not progress)
    try:
        yield
    finally:
        silent.reset(before)


@contextmanager
def bar(
    total: int,
    title: str = "attacking",
    clock: Callable[[], float] = time.monotonic,
    *,
    unit: str = "samples",
    patience: float = 0.0,
) -> Iterator[Progress]:
    """Show the progress of `total` samples on standard error, or below the cell of a notebook; within a bar there is no other.

    With `patience`, the bar appears only if the work takes more than this many seconds.
    """
    if silent.get():
        yield quiet
        return
    with showing(False), ExitStack() as stack:
        state = ProgressState(total, clock, unit)
        show: Callable[[], None] | None = None
        due = state.began + patience

        def refresh() -> None:
            nonlocal due, show
            due = clock() + REFRESH
            show = show or stack.enter_context(_display(state, title))
            show()

        def advance(part: Sized) -> None:
            early = clock() < due and not isinstance(part, Said)
            if not (early and isinstance(part, UnderWay)):
                state.hear(part)
            if not early:
                refresh()

        if not patience:
            refresh()
        yield advance
        if show is not None or clock() >= due:
            refresh()


@contextmanager
def shown(progress: Progress | bool, total: int, title: str, unit: str = "samples") -> Iterator[Progress]:
    """The bar of a function whose caller passed True; nothing for False; or the function that the caller passed."""
    if not isinstance(progress, bool):
        yield progress
        return
    with showing(progress), bar(total, title, unit=unit) as advance:
        yield advance


@contextmanager
def _display(state: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    """A bar in a terminal; one output of a notebook's cell, updated in place; or a line every 10% in a log."""
    from rich.console import Console

    console, last = Console(file=sys.stderr), [0, 0]

    def log() -> None:
        now = [int(state.done / max(state.total, 1) / STEP + 1e-9), state.said]
        if now > last:
            last[:] = now
            sys.stderr.write(state.line(title) + "\n")
            sys.stderr.flush()

    def output() -> dict[str, str]:
        line = state.line(title)
        moving = f'<progress value="{state.done}" max="{max(state.total, 1)}"></progress> {html.escape(line)}'
        return {"text/plain": line, "text/html": moving}

    if console.is_jupyter:  # rich's own bar needs ipywidgets, which few kernels have
        from IPython.display import display

        handle = display(output(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        yield lambda: handle.update(output(), raw=True)
    elif console.is_terminal and not console.is_dumb_terminal:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(bar_width=None), TextColumn("{task.fields[line]}", markup=False))
        with RichProgress(*columns, console=console, auto_refresh=False, expand=True) as rich:
            task = rich.add_task(title, total=state.total, line="")
            yield lambda: rich.update(task, completed=state.done, line=state.line(title), refresh=True)
    else:
        yield log
