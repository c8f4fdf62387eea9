"""Contain user code: a model or a filter may raise anything, exit the program, or never return."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from rlab.errors import OptionError


class TimeUp(BaseException):
    """The code ran too long; not an `Exception`, so that the code itself does not catch it."""


@contextmanager
def contained() -> Iterator[None]:
    """Turn sys.exit() and the like into a RuntimeError, and go back to the working folder; Ctrl-C passes."""
    folder = _working_folder()
    try:
        yield
    except StopIteration as error:  # a context manager would let it pass, and it would end a loop of rlab
        raise RuntimeError(f"it raised StopIteration({words_of(error)})") from None
    except (Exception, KeyboardInterrupt, TimeUp):
        raise
    except BaseException as error:
        raise RuntimeError(f"it tried to exit the program with {type(error).__name__}({words_of(error)})") from error
    finally:
        if folder is not None and folder != _working_folder():
            with suppress(OSError):
                os.chdir(folder)


def _working_folder() -> str | None:
    """The path of the working folder; None if somebody has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return None


def words_of(error: BaseException) -> str:
    """The text of an error; empty if making it fails, too."""
    try:
        return str(error)
    except Exception:
        return ""


def import_named(module: str) -> ModuleType:
    """Import a module that the user named; the current folder is searched last."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with contained():
        return importlib.import_module(module)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise `TimeUp` inside the block after `seconds`, and again every second until the block ends.

    It uses a signal, which Python delivers to the main thread when compiled code returns.
    """
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        raise OptionError("a model's timeout works only in the main thread and not on Windows: omit it")
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
    finally:  # a signal may have interrupted the block above
        signal.setitimer(signal.ITIMER_REAL, *pending)
        signal.signal(signal.SIGALRM, before)
