"""The command line within this process: as `rlab ARGUMENTS` would do it, without the seconds a new process takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rlab.cli import main


@dataclass(frozen=True)
class Said:
    """What a command left behind in the terminal."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def rlab_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [*sys.path])  # modules of the working folder are found, until the test is over

    def command(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["rlab", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        return Said(int(left.value.code or 0), said.out, said.err)

    return command
