"""A real process, killed at random moments and started again with the same command."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from rlab.results.result import AttackResult
from rlab.storage.ledger import LEDGER, PARTS
from tests.command import rlab_command
from tests.helpers import assert_same

ROOT = Path(__file__).resolve().parents[2]
SAMPLES, CHUNK = 16, 1
COMMAND = f"attack demo:digits demo:digits --limit {SAMPLES} --chunk {CHUNK} --budget 200 --policy random".split()
COMMAND += ["--palette", "dead_pixel@0.5", "--pictures", "0"]


def start(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-m", "rlab", *COMMAND, "--out", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished_chunks(folder: Path) -> int:
    if not (folder / LEDGER).exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{folder / LEDGER}?mode=ro", uri=True)) as db:
            return int(db.execute("select count(*) from steps where finished = 1").fetchone()[0])
    except sqlite3.OperationalError:  # the process is still creating it
        return 0


def kill_after(folder: Path, chunks: int, pause: float) -> int:
    """Kill the command `pause` seconds after `chunks` chunks are finished; return how many are finished by then."""
    process = start(folder)
    try:
        until = time.monotonic() + 120
        while finished_chunks(folder) < chunks:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.002)
        time.sleep(pause)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    return finished_chunks(folder)


@pytest.mark.slow  # `test_killed_at_a_few_moments` is not
def test_a_run_killed_repeatedly_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    draw = random.Random(0)
    folder, done = tmp_path / "killed", 0
    for _ in range(2):
        done = kill_after(folder, done + 1 + draw.randrange(3), draw.uniform(0, 0.05))
        assert 0 < done < SAMPLES // CHUNK
        assert not (folder / "samples.parquet").exists()
        assert (folder / PARTS).is_dir()
    for name in ("killed", "unbroken"):
        printed = rlab_command(*COMMAND, "--out", tmp_path / name)
        assert printed.code == 0, printed.err
        assert "flipped" in printed.out
    killed, unbroken = (AttackResult.load(tmp_path / name) for name in ("killed", "unbroken"))
    assert len(killed) == SAMPLES
    assert killed.succeeded.any()
    assert_same(killed, unbroken)
    stored = [path.relative_to(folder) for path in sorted(folder.rglob("*.safetensors"))]
    assert len(stored) == 1 + SAMPLES // CHUNK
    assert all((folder / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes() for name in stored)
    with closing(sqlite3.connect(folder / LEDGER)) as db:
        begun, finished = db.execute("select sum(begun), sum(finished) from steps").fetchone()
    assert finished == SAMPLES // CHUNK
    assert begun - finished <= 2  # only the chunks running at a kill were repeated
