"""The command line: parse, call, print. Anything a user can mend is one sentence and exit code 2."""

from __future__ import annotations

import os
import sys


def main() -> None:
    from rlab.errors import InputError, MissingExtra, VictimError

    try:
        from rlab.cli.app import make_app

        make_app(sys.argv[1:])()
    except (InputError, VictimError, MissingExtra) as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")  # what a user's own module says may run over lines
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the same command goes on from here\n")
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of a pipe went away, e.g. `rlab filters | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
