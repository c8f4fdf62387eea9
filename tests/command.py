"""The command line within this process: as `rlab ARGUMENTS` would do it, without the seconds a new process takes."""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

import pytest

from rlab.cli import main


@dataclass(frozen=True)
class Said:
    """What a command left behind in the terminal."""

    code: int
    out: str
    err: str


def rlab_command(*arguments: object) -> Said:
    """Modules of the working folder are found, but neither kept nor compiled."""
    out, err, modules = io.StringIO(), io.StringIO(), set(sys.modules)
    with (
        mock.patch.object(sys, "argv", ["rlab", *map(str, arguments)]),
        mock.patch.object(sys, "path", [*sys.path]),
        mock.patch.object(sys, "dont_write_bytecode", True),
        mock.patch.dict(os.environ, {"COLUMNS": "200"}),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and name.startswith("my_"):
            del sys.modules[name]
    return Said(int(left.value.code or 0), out.getvalue(), err.getvalue())
