"""The command line: parse, call, print.

Exit codes: 0 the command did all its work, 1 what was required does not hold, 2 the input, the model or the disk cannot be
used, 3 a defect of rlab itself, 130 stopped. 2 and 3 come with one sentence; `--debug` or RLAB_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

REPORT = "please report it with the command and what it prints with --debug"


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1 or os.environ.get("RLAB_DEBUG", "") not in ("", "0")

    fresh = "torch" not in sys.modules
    if fresh:
        gc.disable()  # most of what is imported stays: looking for what does not takes a fifth of the time

    def guarded(command: Callable[..., Any]) -> Callable[..., None]:
        """Only a command that came to its end may end with exit code 0, whatever a model calls within it."""
        from typer import Exit

        def run(**arguments: Any) -> None:
            if fresh:
                gc.freeze()
                gc.enable()
            try:
                command(**arguments)
            except Exit:
                raise
            except BaseException as error:
                _leave(error, debug)

        return run

    try:
        from rlab.cli.app import make_app

        make_app(words, guarded)(words)
    except (KeyboardInterrupt, Exception) as error:
        _leave(error, debug)


def _leave(error: BaseException, debug: bool) -> NoReturn:
    if isinstance(error, BrokenPipeError):  # the reader of a pipe went away, e.g. `rlab filters | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None  # as of a process that the signal ends
    from rlab.redact import redact

    code, sentence = _told(error)
    if debug:
        import traceback

        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    sys.stderr.write(redact(sentence) + "\n")
    raise SystemExit(code) from None


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code and the sentence for what ended a command."""
    from rlab.errors import InputError, MissingExtra, VictimError

    text = " ".join(str(error).split())  # what a user's own module says may run over lines
    match error:
        case InputError() | VictimError() | MissingExtra():
            return 2, f"error: {text}"
        case KeyboardInterrupt():
            return 130, text or "stopped"
        case SystemExit():
            who = f"the model or a filter tried to end the command by SystemExit({text})"
            return 2, f"error: {who}, before its work was done: take that out of it"
        case OSError(strerror=str(reason)):
            where = error.filename2 or error.filename
            return 2, f"error: {reason}{f': {where}' if where else ''}. Once that is mended, the same command goes on"
        case MemoryError():
            return 2, "error: there is not enough memory: take fewer samples, smaller ones, or a smaller chunk"
    return 3, f"error: this is a defect of rlab, not of your input ({type(error).__name__}: {text}): {REPORT}"
