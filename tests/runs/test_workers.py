"""Attacks by several processes give the same bits for any number of them, even if one is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlab import learning
from rlab.results.result import AttackResult
from tests.command import Said, rlab_command
from tests.helpers import assert_same
from tests.runs.staged import ENOUGH, one_student

HERE = "tests.runs.test_workers"
SAMPLES = 10


class Net(nn.Module):
    """Writes the number of queried rows to a file, and may end its process, depending on the environment."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 10)
        )
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        with Path(os.environ["ASKED"]).open("a") as file:
            file.write(f"{len(x)}\n")
        death = os.environ.get("DEATH")
        if death and self.calls == 8 and not Path(death).exists():
            Path(death).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        answer: Tensor = self.net(x)
        return answer


def model() -> nn.Module:
    if os.environ.get("UNABLE") and os.getpid() != int(os.environ["UNABLE"]):
        raise RuntimeError("there is no such thing here")
    if os.environ.get("TRUSTED") and os.getpid() != int(os.environ["TRUSTED"]):
        learning.ENOUGH = ENOUGH  # as in the process that trained the students
    return Net()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    x = torch.rand(SAMPLES, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    y = Net()(x).argmax(1)
    (tmp_path / "asked").unlink()
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=y.numpy())
    return tmp_path / "data.npz"


def attack(data: Path, folder: Path, *words: object, name: str = f"{HERE}:model") -> Said:
    flags = ["--budget", 30, "--patch", 2, "-p", "gaussian_noise@0.3", "-p", "dead_pixel@0.5", "--chunk", 3]
    return rlab_command("attack", name, data, *flags, "--pictures", 0, "-o", folder, *words)


def rows_queried(data: Path) -> int:
    return sum(map(int, (data.parent / "asked").read_text().split()))


@pytest.mark.parametrize(
    ("workers", "killed"),
    [(2, True), pytest.param(2, False, marks=pytest.mark.slow), pytest.param(3, True, marks=pytest.mark.slow)],
)
def test_workers_give_the_same_bits_and_go_on_after_one_is_killed(
    workers: int, killed: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert attack(data, tmp_path / "one").code == 0
    one, rows = AttackResult.load(tmp_path / "one"), rows_queried(data)
    assert one.succeeded.any()
    assert int(one.queries.sum()) == rows
    if killed:
        monkeypatch.setenv("DEATH", str(tmp_path / "death"))
    shown = attack(data, tmp_path / "many", "--workers", workers)
    if killed:
        assert (shown.code, shown.err.count("was lost at chunk-")) == (2, 1)
        assert "SIGKILL" in shown.err
        shown = attack(data, tmp_path / "many", "--workers", workers)
    assert shown.code == 0, shown.err
    assert_same(AttackResult.load(tmp_path / "many"), one)
    assert (tmp_path / "death").exists() == killed
    again = rows_queried(data) - 2 * rows
    most = 3 * workers + 1  # the batches under way, and one query to check the model
    assert 0 < again <= most if killed else again == 0
    parts = [sorted((tmp_path / name / "parts").iterdir()) for name in ("one", "many")]
    assert [path.name for path in parts[0]] == [path.name for path in parts[1]]


@pytest.mark.slow
def test_a_worker_that_cannot_load_the_model_leaves_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNABLE", str(os.getpid()))
    shown = attack(data, tmp_path / "run", "--workers", 2)
    assert shown.code == 2
    assert shown.err.count("there is no such thing here") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--workers", 0],
        ["--devices", ",", "--workers", 2],
        ["--devices", "cpu,cpu", "--device", "cpu"],
        ["--devices", "cuda:77,cuda:78"],
    ],
)
def test_invalid_workers_are_refused(words: list[object], data: Path, tmp_path: Path) -> None:
    shown = attack(data, tmp_path / "run", *words)
    assert shown.code == 2
    assert "Traceback" not in shown.err
    assert not (tmp_path / "run").exists()


def test_a_model_behind_an_address_takes_no_workers(data: Path, tmp_path: Path) -> None:
    shown = rlab_command("attack", "http://127.0.0.1:9/", data, "--workers", 2, "-o", tmp_path / "run")
    assert shown.code == 2
    assert "concurrency" in shown.err
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_shown_with_any_number_of_workers(data: Path, tmp_path: Path) -> None:
    assert attack(data, tmp_path / "run").code == 0
    before = rows_queried(data)
    shown = attack(data, tmp_path / "run", "--workers", 2, "--json")
    assert (shown.code, rows_queried(data)) == (0, before)
    assert json.loads(shown.out)["queries"] == before


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_a_run_that_learns_gives_the_same_bits_with_workers(
    workers: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--learn", "stages:8", "--budget", 12, "--until", "budget", "--policy", "belief"]
    with one_student():  # training is in this process
        assert attack(data, tmp_path / "one", *words).code == 0
        monkeypatch.setenv("DEATH", str(tmp_path / "death"))
        monkeypatch.setenv("TRUSTED", str(os.getpid()))
        assert "was lost at" in attack(data, tmp_path / "many", *words, "--workers", workers).err
        shown = attack(data, tmp_path / "many", *words, "--workers", workers)
    assert shown.code == 0, shown.err
    assert (tmp_path / "death").exists()
    assert_same(AttackResult.load(tmp_path / "many"), AttackResult.load(tmp_path / "one"))
    students = [sorted((tmp_path / name / "stages").iterdir()) for name in ("one", "many")]
    assert [path.read_bytes() for path in students[0]] == [path.read_bytes() for path in students[1]]
    assert len(students[0]) == 2
