"""A real process, killed at random moments and started again with the same command."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

import rlab
from rlab.errors import FolderError, Notice
from rlab.results.result import AttackResult
from rlab.storage.ledger import connect
from rlab.victims import TorchVictim
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


SENT = multiprocessing.get_context("fork").Array(
    "q", 2
)  # calls of the model and rows, also in a process that was killed


def readme(folder: Path, last: int = -1) -> AttackResult:
    """README's attack in Python, with fewer samples and queries; the process is killed at the `last` call of the model."""
    victim = rlab.TorchVictim(rlab.demo_victim("digits").model, mean=[0.306], std=[0.376])
    predict = TorchVictim._predict

    def counting(self: TorchVictim, x: Tensor) -> Tensor:
        SENT[0], SENT[1] = SENT[0] + 1, SENT[1] + len(x)
        if SENT[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return predict(self, x)

    SENT[0] = 0
    with mock.patch.object(TorchVictim, "_predict", counting):
        return rlab.attack(
            victim, rlab.load("demo:digits", limit=6), palette=["gaussian_noise", "gaussian_blur", "dead_pixel"],
            budget=40, chunk=2, out=folder, announce=lambda understood: None,
        )  # fmt: skip


@pytest.mark.slow
def test_readmes_attack_killed_at_twenty_moments(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The first before the first flip; what is repeated is at most what the resumed run says, and at most a chunk."""
    torch.set_num_threads(1)  # a forked process has no other threads
    SENT[1] = 0
    unbroken = readme(tmp_path / "unbroken")
    calls, rows = SENT[:]
    repeated = list[int]()
    for moment in sorted({2 + round(number * (calls - 2) / 19) for number in range(20)}):
        folder, SENT[1] = tmp_path / str(moment), 0
        killed = multiprocessing.get_context("fork").Process(target=readme, args=(folder, moment))
        killed.start()
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", Notice)
            assert_same(readme(folder), unbroken)
        notes = " ".join(str(note.message) for note in said)
        (told,) = re.findall(r"up to ([\d,]+) queries", notes)
        repeated.append(SENT[1] - rows - notes.count("1 query has checked"))
        assert 0 < repeated[-1] <= int(told.replace(",", "")) <= 2 * 40
    record_property("repeated queries", repeated)
