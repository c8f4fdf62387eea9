"""A real process, killed at random moments and started again with the same command."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

import rlab
from rlab.errors import Notice
from rlab.results.result import AttackResult
from rlab.storage.steps import step_paths
from rlab.victims import TorchVictim
from tests.command import rlab_command
from tests.helpers import assert_same

SAMPLES = 16  # a chunk each
COMMAND = f"attack demo:digits demo:digits --limit {SAMPLES} --chunk 1 --budget 200 --policy random".split()
COMMAND += ["--palette", "dead_pixel@0.5", "--pictures", "0"]


def count_chunks(folder: Path) -> int:
    """How many chunks are finished."""
    return len(step_paths(folder, "chunk-"))


def kill_after(folder: Path, chunks: int, pause: float) -> int:
    """Kill the command `pause` seconds after `chunks` chunks are finished; return how many are finished by then."""
    with subprocess.Popen([sys.executable, "-m", "rlab", *COMMAND, "--out", str(folder)]) as process:
        until = time.monotonic() + 120
        while count_chunks(folder) < chunks:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.002)
        time.sleep(pause)
        process.kill()
    return count_chunks(folder)


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
    assert count_chunks(tmp_path / "killed") == SAMPLES


def readme(folder: Path) -> AttackResult:
    """README's attack in Python, with fewer samples and queries.

    Each call of the model appends its number of rows to the file SENT; the process is killed at the call KILL_AT.
    """
    victim = rlab.TorchVictim(rlab.demo_victim("digits").model, mean=[0.306], std=[0.376])
    predict = TorchVictim._predict

    def counting(self: TorchVictim, x: Tensor) -> Tensor:
        sent = Path(os.environ["SENT"])
        with sent.open("a") as file:
            file.write(f"{len(x)}\n")
        if len(sent.read_text().splitlines()) == int(os.environ["KILL_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return predict(self, x)

    with mock.patch.object(TorchVictim, "_predict", counting):
        return rlab.attack(
            victim, rlab.load("demo:digits", limit=4), palette=["gaussian_noise", "gaussian_blur", "dead_pixel"],
            budget=24, chunk=2, out=folder, announce=lambda understood: None,
        )  # fmt: skip


def moments(calls: int, count: int) -> list[int]:
    """Calls at which to kill the process: the first before the first flip, the last one before the end."""
    return sorted({2 + round(number * (calls - 2) / (count - 1)) for number in range(count)})


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_readmes_attack_killed_at_some_moments_repeats_only_what_was_on_its_way(
    count: int, tmp_path: Path, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)  # a forked process has no other threads

    def sent() -> list[int]:
        return [int(line) for line in Path(os.environ["SENT"]).read_text().splitlines()]

    monkeypatch.setenv("SENT", str(tmp_path / "unbroken.txt"))
    monkeypatch.setenv("KILL_AT", "-1")
    unbroken, repeated = readme(tmp_path / "unbroken"), list[int]()
    calls, rows = len(sent()), sum(sent())
    for moment in moments(calls, count):
        folder = tmp_path / str(moment)
        monkeypatch.setenv("SENT", f"{folder}.txt")
        monkeypatch.setenv("KILL_AT", str(moment))
        killed = multiprocessing.get_context("fork").Process(target=readme, args=(folder,))
        killed.start()
        killed.join()
        assert killed.exitcode == -signal.SIGKILL
        *paid, on_its_way = sent()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", Notice)
            monkeypatch.setenv("KILL_AT", "-1")
            assert_same(readme(folder), unbroken)
        notes = " ".join(str(note.message) for note in said)
        asked = notes.count("1 query has checked")
        repeated.append(sum(sent()) - rows - asked)
        assert repeated[-1] == on_its_way
        kept = re.search(r"([\d,]+) answers of the stopped run", notes)
        finished = len(list((folder / "parts").glob("*.safetensors")))
        assert kept is None or 0 < int(kept[1].replace(",", "")) <= sum(paid)
        assert finished == 2
        assert not list(folder.rglob("*.journal"))
        for path in folder.rglob("*.safetensors"):
            assert path.read_bytes() == (tmp_path / "unbroken" / path.relative_to(folder)).read_bytes()
    record_property("repeated queries", repeated)
