"""Pipes, devices, links and hostile files in a folder give an error of one sentence, soon and in little memory."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from rlab.benchmarking.manifest import MANIFEST
from rlab.data.load import load
from rlab.errors import InputError
from rlab.guard import time_limit
from rlab.results.result import AttackResult
from rlab.serve.runs import list_runs
from rlab.storage.lock import hold
from rlab.storage.run_file import RUN
from rlab.storage.sealed import UNSEALED, sealed
from tests.benchmarking.cases import made_once
from tests.command import rlab_command
from tests.runs.killing import unbroken, unbroken_root

SECONDS = 20  # far more than needed, far less than for ever
FILES = (
    "arrays.safetensors",
    "samples.parquet",
    "run.lock",
    "times.parquet",
    "config.yaml",
    "run.json",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    unbroken("attack")
    return Path(shutil.copytree(unbroken_root() / "attack", tmp_path / "runs" / "run"))


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


def as_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("plant", [as_pipe, as_zeros])
def test_no_command_waits_for_a_file(folder: Path, name: str, plant: Callable[[Path], None]) -> None:
    (folder / name).unlink(missing_ok=True)
    plant(folder / name)
    with time_limit(SECONDS):
        for command in ("show", "report"):
            shown = rlab_command(command, folder)
            assert shown.code == 2, shown
            assert shown.err.count("\n") == 1
        list_runs(folder.parent)


@pytest.mark.parametrize("name", ["arrays.safetensors", "samples.parquet", "run.json"])
def test_no_function_waits_for_a_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    as_pipe(folder / name)
    with time_limit(SECONDS), pytest.raises(InputError):
        AttackResult.load(folder)


def test_a_lock_must_be_a_file(tmp_path: Path) -> None:
    as_pipe(tmp_path / "run.lock")
    with time_limit(SECONDS), pytest.raises(InputError), hold(tmp_path, "test"):
        pass


def test_a_pipe_as_a_picture_of_a_benchmark(tmp_path: Path) -> None:
    folder = made_once(tmp_path, 2, "png").folder
    picture = next(folder.rglob("*.png"))
    picture.unlink()
    as_pipe(picture)
    with time_limit(SECONDS):
        for words in (("report",), ("benchmark", "verify")):
            assert rlab_command(*words, folder).code == 2


def test_a_manifest_of_enormous_samples(tmp_path: Path) -> None:
    """Its numbers decide how much memory is needed."""
    folder = made_once(tmp_path, 2, "png").folder
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["shape"]["size"] = [10**8, 10**8]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    for words in (
        ("report", folder),
        ("benchmark", "verify", folder),
        ("benchmark", "run", folder, "--model", "demo:digits"),
    ):
        said = rlab_command(*words)
        assert said.code in (1, 2), said
        assert said.err.count("\n") <= 1


RUN_FILES = {
    "nothing": b"",
    "no JSON": b"no JSON",
    "deep": b"[" * 10**6,
    "a long number": b'{"configuration": {"n": ' + b"9" * 10**6 + b'}, "versions": {"rlab": "1"}}',
    "a list": b"[]",
    "other fields": b'{"more": 1}',
    "no version": b'{"configuration": {}, "versions": {}}',
}


@pytest.mark.parametrize("content", RUN_FILES.values(), ids=RUN_FILES)
def test_another_run_file_is_refused(folder: Path, content: bytes) -> None:
    """Also if it has the right digest."""
    seal = b'{"seal": "%s", ' % UNSEALED.encode()
    (folder / RUN).write_bytes(sealed(content.replace(b"{", seal, 1)))
    with time_limit(SECONDS):
        for command in ("show", "report"):
            shown = rlab_command(command, folder)
            assert (shown.code, shown.err.count("\n")) == (2, 1), shown
            assert "run.json is damaged" in shown.err
        (entry,) = list_runs(folder.parent)
    assert entry.command in ("attack", "damaged")


def test_a_run_file_of_any_size_is_not_read(folder: Path) -> None:
    with (folder / RUN).open("r+b") as file:
        file.truncate(2**40)  # takes no room on the disk
    with time_limit(SECONDS), pytest.raises(InputError, match=r"run\.json has more than"):
        AttackResult.load(folder)


def test_links_in_data_are_followed(tmp_path: Path) -> None:
    """A folder of images that the user names may consist of links, as many data sets do."""
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "a.png")
    for name in ("0", "1"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "a.png").symlink_to(tmp_path / "elsewhere" / "a.png")
    assert len(load(tmp_path / "data")) == 2


def test_every_promise_names_a_test(root: Path) -> None:
    """The table of SECURITY.md: `path::test`, or `::test` in the file before it."""
    named, file = 0, ""
    for path, test in re.findall(r"`([\w/.]*)::(\w+)`", (root / "SECURITY.md").read_text()):
        file = path or file
        assert f"def {test}(" in (root / file).read_text(), (file, test)
        named += 1
    assert named > 25
