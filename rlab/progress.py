"""How far something long is, on standard error: a bar in a terminal, one line in a notebook, a line now and then in a log.

Work counts in samples, those under way by the queries asked of what they are expected to take, so that the estimate of the
time left moves within a chunk.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

Progress = Callable[[Any], None]  # called with each finished part, which has a length, and with parts under way
LINE, REFRESH = 10.0, 0.2  # seconds between lines of a log, and between looks at what is under way


@dataclass(frozen=True)
class Tally:
    """How attacked samples stand; `done` is work in samples."""

    done: float = 0.0
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
        words = [f"{self.flipped} flipped, {self.held} held, {self.failed} failed"]
        return ", ".join(
            [*words, *([f"median {self.distance} {statistics.median(self.best):.3g}"] if self.best else [])]
        )


@dataclass(frozen=True)
class UnderWay:
    """A part that is not finished; its tally is made when somebody looks, who may know what a sample is expected to ask."""

    tally: Callable[[float | None], Tally]

    def __len__(self) -> int:
        return 0


class ProgressState:
    """Where the whole stands: what is finished, and the part under way."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.clock, self.began = total, clock, clock()
        self.finished, self.under_way, self.known = Tally(), Tally(), Tally()  # known: finished by an earlier process
        self.words = ""  # of parts that tell something else than how samples stand

    def hear(self, part: Any) -> None:
        self.words = part.note() if hasattr(part, "note") else ""
        if isinstance(part, UnderWay):
            ended = self.finished.flipped + self.finished.held + self.finished.failed
            self.under_way = part.tally(self.finished.queries / ended if ended else None)
            return
        tally = part.tally() if hasattr(part, "tally") else Tally()
        tally, self.under_way = replace(tally, done=len(part)), Tally()
        self.finished += tally
        if getattr(part, "recalled", False):
            self.known += tally

    @property
    def done(self) -> float:
        return min(self.finished.done + self.under_way.done, self.total)

    def left(self) -> float | None:
        """Seconds the rest takes at the speed so far; None before there is one."""
        made = self.done - self.known.done
        return (self.clock() - self.began) * (self.total - self.done) / made if made > 0 else None

    def note(self) -> str:
        """What the last part told, or how the samples stand and how quickly the model answers."""
        now, seconds = self.finished + self.under_way, max(self.clock() - self.began, 1e-9)
        if self.words or not now.queries:
            return self.words
        return f"{now}, {(now.queries - self.known.queries) / seconds:,.0f} queries/s"

    def share(self) -> str:
        return f"{self.done / max(self.total, 1):.0%} of {self.total}"

    def times(self) -> str:
        left = self.left()
        return f"{_clock(self.clock() - self.began)} gone" + ("" if left is None else f", {_clock(left)} left")

    def line(self, title: str) -> str:
        """All of it, for a log."""
        parts = (f"{title} {self.share()}", self.note(), self.times())
        return ", ".join(part for part in parts if part)


def _clock(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours}:{minutes % 60:02d}:{int(seconds) % 60:02d}" if hours else f"{minutes}:{int(seconds) % 60:02d}"


def quiet(part: Any) -> None:
    """No bar."""


silent = ContextVar("nobody wants to hear of progress", default=False)


@contextmanager
def bar(total: int, title: str = "attacking") -> Iterator[Progress]:
    """Shows how far `total` samples are, in the way that suits who reads standard error."""
    if silent.get():
        yield quiet
        return
    from rich.console import Console

    console, standing = Console(file=sys.stderr), ProgressState(total)
    how = _bar if console.is_terminal and not console.is_dumb_terminal else _lines
    with how(console, standing, title) as show:
        seen = -REFRESH

        def advance(part: Any) -> None:
            nonlocal seen
            if isinstance(part, UnderWay) and standing.clock() - seen < REFRESH:
                return
            standing.hear(part)
            seen = standing.clock()
            show()

        yield advance


@contextmanager
def _bar(console: Any, standing: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    texts = (TextColumn(f"{{task.fields[{name}]}}") for name in ("share", "note", "times"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), *texts)
    with RichProgress(*columns, console=console) as shown:
        task = shown.add_task(title, total=standing.total, share="", note="", times="")

        def show() -> None:
            words: dict[str, Any] = {"share": standing.share(), "note": standing.note(), "times": standing.times()}
            shown.update(task, completed=standing.done, **words)

        yield show


@contextmanager
def _lines(console: Any, standing: ProgressState, title: str) -> Iterator[Callable[[], None]]:
    """A notebook's line is written over each second; a log gets a new one now and then."""
    every, end = (1.0, "\r") if console.is_jupyter else (LINE, "\n")
    told = standing.began

    def show() -> None:
        nonlocal told
        if standing.clock() - told >= every:
            told = standing.clock()
            sys.stderr.write(standing.line(title) + end)
            sys.stderr.flush()

    yield show
    if end == "\r" and told > standing.began:
        sys.stderr.write("\n")
