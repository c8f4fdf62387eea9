"""Code that is not ours, a model or a filter, may raise anything, leave the program, or never return: here it cannot."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from rlab.errors import InputError


class TimeUp(BaseException):
    """The code ran for too long; not an `Exception`, so that it is not swallowed by the code itself."""


@contextmanager
def contained() -> Iterator[None]:
    """Whoever calls for the program's end, by sys.exit() say, only fails. Ctrl-C, which nobody can tell from theirs, passes."""
    try:
        yield
    except (Exception, KeyboardInterrupt, TimeUp):
        raise
    except BaseException as error:
        raise RuntimeError(f"it called for the program's end with {type(error).__name__}({error})") from error


def import_named(module: str) -> ModuleType:
    """A module the user named; those of the current folder are found, after all that are installed."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with contained():
        return importlib.import_module(module)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raises `TimeUp` inside the block after so many seconds, and every second again until it ends.

    By a signal, which Python delivers to the main thread as soon as that is back from a library's compiled code.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        raise InputError("a model's timeout is kept in the main thread alone, and not on Windows: leave it out")
    running = True

    def ring(*_: object) -> None:
        if running:
            raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    pending = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            yield
        finally:
            running = False
    finally:  # a ring may have cut the block before
        signal.setitimer(signal.ITIMER_REAL, *pending)
        signal.signal(signal.SIGALRM, before)
