"""A run resumes only with the same model, files and modules; others under the same names are refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rlab.runs.fingerprint import named_in
from rlab.storage import files
from tests.command import rlab_command
from tests.runs.killing import COMMANDS, Killed, trouble, unbroken

QUICK = ["demo:digits", "--limit", 4, "--budget", 12, "--chunk", 2, "--pictures", 0, "--policy", "random", "-o", "run"]
MODULE = "from torch import nn\ndef model():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("my_net.py").write_text(MODULE)
    yield
    sys.modules.pop("my_net", None)


def write_weights(seed: int) -> None:
    torch.manual_seed(seed)
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), "weights.safetensors")


def attack() -> int:
    return rlab_command("attack", "weights.safetensors", "-M", "factory=my_net:model", *QUICK).code


def test_other_weights_or_another_module_under_the_same_name_are_refused() -> None:
    write_weights(0)
    assert attack() == 0
    write_weights(1)
    before = {path.name: path.read_bytes() for path in Path("run").rglob("*.*")}
    assert attack() == 2
    assert {path.name: path.read_bytes() for path in Path("run").rglob("*.*")} == before
    write_weights(0)
    assert attack() == 0
    Path("my_net.py").write_text(MODULE.replace("64, 10)", "64, 10), nn.Tanh()"))
    assert attack() == 2


def test_files_and_modules_have_digests_but_data_files_do_not() -> None:
    for name in ("agent.safetensors", "data.npz"):
        Path(name).write_text(name)
    config = {"policy": "belief(prior='agent.safetensors')", "data": {"path": "data.npz"}, "palette": ["os:getcwd@0.5"]}
    assert sorted(named_in(config)) == ["the file agent.safetensors", "the function os:getcwd"]


def test_resuming_does_not_read_the_arrays_of_finished_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only their rows and assignments are read."""
    with pytest.raises(Killed), trouble(tmp_path / "attacked", at=round(unbroken("attack")[0] * 0.6)):
        COMMANDS["attack"](tmp_path / "attacked")
    read, whole = list[str](), files.read_arrays

    def reading(path: Path, *names: str) -> object:
        if not names:  # all arrays of the file
            read.append(path.name)
        return whole(path, *names)

    monkeypatch.setattr(files, "read_arrays", reading)
    COMMANDS["attack"](tmp_path / "attacked")
    chunks = [name for name in read if name.startswith("chunk-")]
    assert chunks
    assert not {"chunk-00000000.safetensors", "chunk-00000002.safetensors"} & set(chunks)
    assert files.ARRAYS not in read
