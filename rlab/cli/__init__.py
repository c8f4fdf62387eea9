"""The command line: parse, call, print.

Exit codes: 0 success, 1 a requirement does not hold, 2 the input, the model or the disk cannot be used, 3 a bug in rlab,
130 stopped. Codes 2 and 3 come with a one-line error; `--debug` or RLAB_DEBUG=1 shows the traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

REPORT = "please report it with the command and its output with --debug"


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1 or os.environ.get("RLAB_DEBUG", "") not in ("", "0")

    fresh = "torch" not in sys.modules
    if fresh:
        gc.disable()  # imported modules stay: collecting garbage among them takes a fifth of the time

    def guarded(command: Callable[..., Any]) -> Callable[..., None]:
        """A model that calls sys.exit(0) inside the command must not make it look successful."""
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
        raise SystemExit(141) from None  # the exit code of a process that SIGPIPE ends
    from rlab.redact import redact

    code, sentence = _told(error)
    if debug:
        import traceback

        sys.stderr.write(redact("".join(traceback.format_exception(error))))
    sys.stderr.write(redact(sentence) + "\n")
    raise SystemExit(code) from None


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code and the error: one line, or three if a server refused a request."""
    from rlab.errors import InputError, MissingExtra, VictimError

    text = " ".join(str(error).split())  # errors of user code may have several lines
    match error:
        case VictimError():
            return 2, "\n".join(" ".join(line.split()) for line in f"error: {error}".splitlines()[:3])
        case InputError() | MissingExtra():
            return 2, f"error: {text}"
        case KeyboardInterrupt():
            return 130, text or "stopped"
        case SystemExit():
            who = f"the model or a filter raised SystemExit({text}) before the command was finished"
            return 2, f"error: {who}: remove the call of sys.exit"
        case OSError(strerror=str(reason)):
            where = error.filename2 or error.filename
            why = f"{reason}: {where}" if where else reason
            return 2, f"error: {why}. Fix that and run the same command again to resume"
        case MemoryError():
            return 2, "error: out of memory: use fewer or smaller samples, or a smaller --chunk"
    return 3, f"error: this is a bug in rlab, not in your input ({type(error).__name__}: {text}): {REPORT}"
