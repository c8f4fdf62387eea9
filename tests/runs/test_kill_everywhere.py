"""Killed at any touch of the file system, a command goes on and ends as if nothing had been; nothing is left over.

So it does after the disk was full, or could not be written any more, which it says in one sentence.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rlab.cli import _told
from rlab.errors import InputError
from tests.runs.killing import COMMANDS, Killed, names, trouble, unbroken

FEW = {"attack": 6, "train": 3, "benchmark png": 3, "benchmark npz": 4, "harden": 4, "audit": 2}


def kill_and_go_on(name: str, moment: int, folder: Path) -> None:
    command, (_, outcome, files) = COMMANDS[name], unbroken(name)
    with pytest.raises(Killed), trouble(folder, at=moment):
        command.run(folder)
    command.run(folder)
    assert command.outcome(folder) == outcome, f"killed at {moment}"
    assert names(folder) == files, f"killed at {moment}"


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_a_few_moments(name: str, tmp_path: Path) -> None:
    moments, few = unbroken(name)[0], FEW[name]
    for number in range(few):
        moment = 1 + round(number * (moments - 1) / (few - 1))
        kill_and_go_on(name, moment, tmp_path / str(moment))


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_a_hundred_moments(name: str, tmp_path: Path) -> None:
    moments = unbroken(name)[0]
    for moment in sorted({1 + round(number * (moments - 1) / 99) for number in range(100)}):
        kill_and_go_on(name, moment, tmp_path / str(moment))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["disk full", "read-only"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_takes_no_more(name: str, number: int, tmp_path: Path) -> None:
    command, (moments, outcome, files) = COMMANDS[name], unbroken(name)
    folder = tmp_path / "run"
    refused = OSError(number, os.strerror(number), str(folder / "file"))
    for moment in (1, moments // 2):
        with pytest.raises((OSError, InputError)) as told, trouble(folder, moment, refused):
            command.run(folder)
        code, sentence = _told(told.value)
        assert code == 2
        assert "\n" not in sentence
    command.run(folder)
    assert command.outcome(folder) == outcome
    assert names(folder) == files
