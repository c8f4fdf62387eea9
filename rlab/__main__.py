"""`python -m rlab` is `rlab`."""

import sys

if __name__ == "__main__":  # worker processes import this file under another name
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: a json.py among somebody's data must not run in place of Python's own
    from rlab.cli import main

    main()
