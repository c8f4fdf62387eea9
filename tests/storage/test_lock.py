"""A folder belongs to one process and one command: any other is refused and changes nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest

import rlab.cli.folder
from rlab.cli.folder import run_folder
from rlab.errors import FolderError
from rlab.results.result import AttackResult
from rlab.storage.lock import LOCK, hold
from rlab.storage.resume import open_run
from tests.benchmarking.cases import made_once
from tests.command import rlab_command
from tests.helpers import assert_same

QUICK = ["demo:digits", "demo:digits", "--limit", 4, "--budget", 20, "--pictures", 0]
HOLDER = """
import sys, time
from pathlib import Path
from rlab.storage.lock import hold
with hold(Path(sys.argv[1]), "train"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def held_by_another(folder: Path, seconds: float = 60) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(folder), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_second_process_learns_who_holds_the_folder(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "run") as other:
        run = rlab_command("attack", *QUICK, "--out", tmp_path / "run")
        assert run.code == 2
        assert f"`rlab train` (process {other.pid} on " in run.err
        assert list(content(tmp_path / "run")) == [LOCK]


def test_a_kill_releases_the_folder(tmp_path: Path) -> None:
    with held_by_another(tmp_path / "run") as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert (tmp_path / "run" / LOCK).exists()
        with hold(tmp_path / "run", "attack"):
            assert f'"pid": {os.getpid()}' in (tmp_path / "run" / LOCK).read_text()
        assert not list((tmp_path / "run").iterdir())


def test_a_process_may_wait(tmp_path: Path) -> None:
    owners: list[str] = []
    with held_by_another(tmp_path / "run", 0.3), hold(tmp_path / "run", "attack", wait=owners.append):
        assert (tmp_path / "run" / LOCK).exists()  # a new file: the other process removed its own
    assert len(owners) == 1
    assert "`rlab train`" in owners[0]
    assert not list((tmp_path / "run").iterdir())


def test_only_the_holder_may_open_a_folder_again(tmp_path: Path) -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            with hold(tmp_path / "run", "attack"):
                pass
        except FolderError as error:
            refused.append(str(error))

    with hold(tmp_path / "run", "audit"), hold(tmp_path / "." / "run", "attack"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert '"command": "audit"' in (tmp_path / "run" / LOCK).read_text()
    assert len(refused) == 1


def test_an_unused_folder_is_removed_with_its_parents(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for place in ("a/b/c", "mine"):
        with pytest.raises(RuntimeError), hold(tmp_path / place, "attack"):
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_folders_of_the_same_second_get_different_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rlab.cli.folder, "datetime", mock.Mock(now=lambda: datetime(2026, 1, 2)))
    with run_folder(None, "attack", wait=False) as one, run_folder(None, "attack", wait=False) as other:
        assert [one.name, other.name] == ["attack-20260102-000000", "attack-20260102-000000-2"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["file/run", "/proc/run"])
def test_an_unwritable_folder_is_noticed_before_the_first_query(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("my_model.py").write_text("def model():\n    return lambda x: open('asked', 'w') and x[:, 0, 0, :2]\n")
    run = rlab_command("attack", "my_model:model", *QUICK[1:], "--out", out)
    assert (run.code, run.err.count("\n")) == (2, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "my_model.py"]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "run"
    assert rlab_command("attack", *QUICK, "--out", folder).code == 0
    return folder


TRAIN = "models: [demo:digits]\ndata: {path: demo:digits, limit: 8}\npalettes: [[gaussian_noise@0.3]]\npatches: [2]\n"
AUDIT = "model: demo:digits\ndata: {path: demo:digits, limit: 4}\n"
AUDIT += "requirements: [{metric: clean_accuracy, at_least: 1%}]\n"
SMALL = ["demo:digits", "demo:digits", "--limit", 4]


@pytest.mark.parametrize(
    "command",
    [
        ["compare", *SMALL],
        ["explain", *SMALL],
        ["harden", *SMALL[:3], 40],
        ["benchmark", "make", *SMALL],
        ["benchmark", "run", "b", "--model", "demo:digits"],
        ["train", "train.yaml"],
        ["audit", "audit.yaml"],
        ["demo"],
    ],
    ids=lambda words: " ".join(map(str, words[:2])),
)
def test_a_folder_belongs_to_the_command_that_made_it(
    command: list[object], attacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(TRAIN)
    Path("audit.yaml").write_text(AUDIT)
    if "b" in command:
        made_once(tmp_path)
    before = content(attacked)
    run = rlab_command(*command, "--out", attacked)
    assert (run.code, run.err.count("\n")) == (2, 1), run.err
    assert "rlab attack" in run.err
    assert content(attacked) == before


def test_an_attack_refuses_the_folder_of_a_comparison(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"command": "compare"}) as resume:
        resume.record("attack random", "", [])
    assert rlab_command("attack", *QUICK, "--out", tmp_path / "run").code == 2


def test_nothing_is_drawn_into_a_folder_that_another_process_holds(attacked: Path) -> None:
    before = content(attacked)
    with held_by_another(attacked):
        for command in (["report", attacked], ["show", attacked, "--pictures", 1]):
            assert rlab_command(*command).code == 2
    (attacked / LOCK).unlink()
    assert content(attacked) == before


@pytest.mark.slow
def test_two_different_attacks_on_one_folder_at_the_same_time(tmp_path: Path) -> None:
    """One is refused; the folder holds the result of the other."""

    def command(seed: int, folder: Path) -> list[str]:
        return [sys.executable, "-m", "rlab", "attack", *map(str, QUICK), "--seed", str(seed), "--out", str(folder)]

    both = [subprocess.Popen(command(seed, tmp_path / "run"), stderr=subprocess.PIPE) for seed in (0, 1)]
    for process in both:
        process.communicate()
    assert sorted(process.returncode for process in both) == [0, 2]
    won = AttackResult.load(tmp_path / "run").setting.seed
    subprocess.run(command(won, tmp_path / "alone"), check=True, capture_output=True)
    assert_same(AttackResult.load(tmp_path / "run"), AttackResult.load(tmp_path / "alone"))


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A finished run on a medium that cannot be written."""
    run = tmp_path / "run"
    assert rlab_command("attack", *QUICK, "--no-page", "--out", run).code == 0
    bound = subprocess.run(["mount", "--bind", run, run], capture_output=True).returncode == 0
    if not bound or subprocess.run(["mount", "-o", "remount,bind,ro", run], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    yield run
    subprocess.run(["umount", "--lazy", run], check=True)


@pytest.mark.slow
def test_a_finished_run_on_a_read_only_medium(read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading needs no lock: a repeated command shows the result, and a page can be written elsewhere."""
    again = rlab_command("attack", *QUICK, "--out", read_only)
    assert again.code == 0, again.err
    assert rlab_command("show", read_only).code == 0
    assert rlab_command("report", read_only, "--out", tmp_path / "page.html").code == 0
    monkeypatch.chdir(tmp_path)
    for code in (0, 2):  # what it wrote is not overwritten
        assert rlab_command("report", read_only).code == code
    assert (tmp_path / "run.html").is_file()
