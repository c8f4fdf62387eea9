"""A real process, killed at random moments and started again with the same command."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rlab.errors import FolderError
from rlab.results.result import AttackResult
from rlab.storage.ledger import connect
from tests.command import rlab_command
from tests.helpers import assert_same

SAMPLES = 16  # a chunk each
COMMAND = f"attack demo:digits demo:digits --limit {SAMPLES} --chunk 1 --budget 200 --policy random".split()
COMMAND += ["--palette", "dead_pixel@0.5", "--pictures", "0"]


def count_chunks(folder: Path) -> tuple[int, int]:
    """How often chunks were begun, and how many are finished."""
    try:
        with closing(connect(folder)) as db:
            begun, finished = db.execute("select sum(begun), sum(finished) from steps").fetchone()
            return begun or 0, finished or 0
    except (sqlite3.OperationalError, FolderError):  # the process is still creating it
        return 0, 0


def kill_after(folder: Path, chunks: int, pause: float) -> int:
    """Kill the command `pause` seconds after `chunks` chunks are finished; return how many are finished by then."""
    with subprocess.Popen([sys.executable, "-m", "rlab", *COMMAND, "--out", str(folder)]) as process:
        until = time.monotonic() + 120
        while count_chunks(folder)[1] < chunks:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.002)
        time.sleep(pause)
        process.kill()
    return count_chunks(folder)[1]


@pytest.mark.slow  # `test_killed_at_some_moments` is not
def test_a_run_killed_repeatedly_ends_like_an_unbroken_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(root))
    draw, done = random.Random(0), 0
    for _ in range(2):
        done = kill_after(tmp_path / "killed", done + 1 + draw.randrange(3), draw.uniform(0, 0.05))
        assert 0 < done < SAMPLES
        assert not (tmp_path / "killed" / "samples.parquet").exists()
    for name in ("killed", "unbroken"):
        assert rlab_command(*COMMAND, "--out", tmp_path / name).code == 0
    killed, unbroken = (AttackResult.load(tmp_path / name) for name in ("killed", "unbroken"))
    assert killed.succeeded.any()
    assert_same(killed, unbroken)
    stored = [path.relative_to(tmp_path / "killed") for path in sorted((tmp_path / "killed").rglob("*.safetensors"))]
    assert len(stored) == 1 + SAMPLES
    assert all(
        (tmp_path / "killed" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes() for name in stored
    )
    begun, finished = count_chunks(tmp_path / "killed")
    assert finished == SAMPLES
    assert begun - finished <= 2  # only the chunks running at a kill were repeated
