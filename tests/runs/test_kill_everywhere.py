"""A command killed at any access to the file system resumes and ends like an unbroken one, without leftovers.

The same holds after a full or read-only disk, which raises an error of one sentence.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from rlab.errors import InputError, Notice
from tests.runs.killing import COMMANDS, FAULTS, Killed, difference, faulty, trouble, unbroken

Record = Callable[[str, object], None]
FEW = {
    "attack": 6, "two workers": 2, "learn": 2, "stages": 2, "explain": 3, "compare": 2, "train": 2, "benchmark png": 2,
    "benchmark npz": 2, "harden": 2, "audit": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_killed_at_some_moments(name: str, tmp_path: Path, record_property: Record) -> None:
    moments, count = unbroken(name)[0], FEW[name]
    tried = sorted({1 + round(number * (moments - 1) / (count - 1)) for number in range(count)})
    record_property("faults", len(tried))
    assert not {moment: said for moment in tried if (said := faulty(name, "killed", moment, tmp_path / str(moment)))}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unwritable_disk(name: str, tmp_path: Path) -> None:
    """Read-only at first, later full."""
    moments, folder = unbroken(name)[0], tmp_path / "run"
    for moment, number in ((1, errno.EROFS), (moments // 2, errno.ENOSPC)):
        refused = OSError(number, os.strerror(number), str(folder / "file"))
        with pytest.raises((OSError, InputError)) as caught, trouble(folder, moment, refused):
            COMMANDS[name](folder)
        assert "\n" not in str(caught.value)
    COMMANDS[name](folder)
    assert not difference(name, folder)


@pytest.mark.parametrize("fault", ["disk full for a moment", "input/output error"])
def test_a_fault_at_some_moments(fault: str, tmp_path: Path) -> None:
    moments = unbroken("attack")[0]
    tried = (moments // 4, moments // 2, moments - 2)
    assert not {moment: said for moment in tried if (said := faulty("attack", fault, moment, tmp_path / str(moment)))}


@pytest.mark.parametrize(
    ("fault", "moments"),
    [("killed", (2,)), *(pytest.param(fault, (1, 2, 3), marks=pytest.mark.slow) for fault in FAULTS)],
)
def test_a_fault_of_a_worker_alone(fault: str, moments: Sequence[int], tmp_path: Path, record_property: Record) -> None:
    """A worker writes a part in three accesses; the one that replaces a dead worker dies there too."""
    record_property("faults", len(moments))
    tried = {at: faulty("two workers", fault, at, tmp_path / str(at), of_workers=True) for at in moments}
    assert not any(tried.values()), tried


@pytest.mark.parametrize(
    ("name", "words"),
    [("attack", "are read back, so their queries are not paid again")],
)
def test_a_resumed_run_says_what_was_paid_for(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(Killed), trouble(tmp_path / "run", unbroken(name)[0] // 2):
        COMMANDS[name](tmp_path / "run")
    with pytest.warns(Notice, match=words):
        COMMANDS[name](tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_fault_at_every_moment(name: str, fault: str, tmp_path: Path, record_property: Record) -> None:
    """As the tests of SQLite do: the k-th access to the disk fails, for every k."""
    moments = range(1, unbroken(name)[0] + 1)
    record_property("faults", len(moments))
    assert not {moment: said for moment in moments if (said := faulty(name, fault, moment, tmp_path / str(moment)))}


def mount(folder: Path, options: str) -> bool:
    return not subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [12, 24, 40, 64, 96])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_small_disk(name: str, kilobytes: int, tmp_path: Path) -> None:
    """A real file system that fills up and is then enlarged."""
    if not mount(tmp_path, f"size={kilobytes}k"):
        pytest.skip("mounting is not permitted here")
    unbroken(name)
    try:
        with suppress(OSError, InputError):  # both become one sentence and exit code 2
            COMMANDS[name](tmp_path / "run")
        assert mount(tmp_path, "remount,size=50m")
        COMMANDS[name](tmp_path / "run")
        assert not difference(name, tmp_path / "run")
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
