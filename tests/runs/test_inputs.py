"""A run resumes only with the same model, files and modules; others under the same names are refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from torch import nn

import rlab
from rlab.errors import FolderError
from rlab.runs.fingerprint import code_fingerprint, files_of, model_fingerprint
from rlab.storage import files
from rlab.victims import SklearnVictim
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
    Path("my_net.py").write_text(MODULE + "# another\n")
    assert attack() == 2


def test_files_and_modules_have_digests_but_data_files_do_not() -> None:
    for name in ("agent.safetensors", "data.npz"):
        Path(name).write_text(name)
    config = {"policy": "belief(prior='agent.safetensors')", "data": {"path": "data.npz"}, "palette": ["os:getcwd@0.5"]}
    assert sorted(files_of(config)) == ["the file agent.safetensors", "the module os"]


def test_estimators_with_other_parameters_have_other_fingerprints() -> None:
    x, y = [[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.9, 0.1]], [0, 1, 0, 1]
    one, same, other = (SklearnVictim(LogisticRegression(C=c).fit(x, y)) for c in (1.0, 1.0, 3.0))
    assert model_fingerprint("a", one) == model_fingerprint("a", same) != model_fingerprint("a", other)


def linear(weight: NDArray[np.float64]) -> Callable[..., Any]:
    def scores(x: Any) -> Any:
        return x.reshape(len(x), -1) @ weight

    return scores


def attack_in_memory(function: Callable[..., Any]) -> None:
    victim = rlab.CallableVictim(function, outputs="logits")
    rlab.attack(victim, "demo:digits", out="run", limit=4, budget=6, chunk=2, policy="random")


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
def test_a_function_in_memory_resumes_unless_its_code_or_weights_changed() -> None:
    weight = np.eye(64, 10)
    for _ in range(2):
        attack_in_memory(linear(weight.copy()))
    for other in (linear(2 * weight), lambda x: x.reshape(len(x), -1)[:, :10], partial(np.dot, b=weight)):
        with pytest.raises(FolderError):
            attack_in_memory(other)


@pytest.mark.filterwarnings("ignore::rlab.errors.Notice")
def test_a_function_without_source_code_does_not_resume() -> None:
    made: dict[str, Any] = {}
    exec("def scores(x):\n    return x.reshape(len(x), -1)[:, :10]", made)
    attack_in_memory(made["scores"])
    with pytest.raises(FolderError, match="by name"):
        attack_in_memory(made["scores"])


def test_what_a_function_uses_is_part_of_its_fingerprint() -> None:
    def known(scale: float = 1.0, weight: float = 1.0) -> str | None:
        net = nn.Linear(2, 2)
        nn.init.constant_(net.weight, weight)
        nn.init.zeros_(net.bias)
        return code_fingerprint(partial(lambda x, s: net(x) * s, s=torch.tensor(scale)))

    others = {known(weight=2.0), known(scale=2.0)}
    others |= {code_fingerprint(function) for function in (linear(np.eye(2)), nn.Linear(2, 2).forward)}
    assert known() == known()
    assert len({known(), *others, None}) == 6


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
