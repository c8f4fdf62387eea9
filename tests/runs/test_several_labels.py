"""Whether records have one label or several follows from the model and the data, is printed, and a mismatch names the option."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rlab
from tests.command import rlab_command
from tests.data.test_physionet import make

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, end):
        super().__init__()
        self.end = end
    def forward(self, x):
        return self.end(torch.stack([(1 + k) * x[:, k].std(-1) for k in range(5)], 1))

softmax = lambda: Net(lambda scores: (4 * scores).softmax(1))
logits = lambda: Net(lambda scores: 4 * scores)
sigmoid = lambda: Net(lambda scores: (scores - 1).sigmoid())
"""
QUICK = ("--budget", 4, "--policy", "random", "--patch", 250, "--no-page", "--out", "run", "--pictures", 0)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("ptbxl")
    make(folder, fast=False)
    return folder


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODELS)


@pytest.mark.parametrize(
    ("model", "options", "code", "words"),
    [
        ("softmax", (), 0, ("labels   one per sample", "2 × has several labels")),
        ("logits", (), 0, ("labels   one per sample",)),
        ("sigmoid", ("-M", "multilabel=true"), 0, ("labels   several per sample", "goal multilabel")),
        ("sigmoid", (), 2, ("like several labels per sample", "-M multilabel=true")),
        ("softmax", ("-M", "multilabel=true"), 2, ("like one class per sample", "-D multilabel=false")),
        ("logits", ("-D", "multilabel=true"), 2, ("-M multilabel=true",)),
        ("sigmoid", ("-M", "multilabel=true", "--goal", "untargeted"), 2, ("or choose the goal multilabel",)),
    ],
)  # fmt: skip
def test_labels_follow_the_model(
    model: str, options: tuple[str, ...], code: int, words: tuple[str, ...], records: Path
):
    said = rlab_command("attack", f"my_models:{model}", records, *QUICK, *options)
    text = said.out + said.err
    assert said.code == code, text
    assert all(word in " ".join(text.split()) for word in (" ".join(one.split()) for one in words)), text


class Scores(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([9 * x[:, k].std(-1) - 2 * k for k in range(5)], 1)


def test_a_module_takes_what_the_data_have(records: Path):
    result = rlab.attack(Scores(), records, budget=4, policy="random", patch=250, progress=False)
    assert result.setting.goal == "multilabel"
    single = rlab.load(records, multilabel=False)
    result = rlab.attack(Scores(), single, budget=4, policy="random", patch=250, progress=False)
    assert result.setting.goal == "untargeted"


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_model_with_several_labels_takes_arrays_in_which_every_sample_has_one(tmp_path: Path, on_disk: bool):
    x, y = np.random.default_rng(0).random((5, 5, 40), np.float32), np.eye(5, dtype=np.int64)
    np.savez(tmp_path / "one.npz", x=x, y=y)
    victim = rlab.TorchVictim(Scores(), multilabel=True, bounds=(0.0, 1.0))
    data = tmp_path / "one.npz" if on_disk else (x, y)
    result = rlab.attack(victim, data, budget=4, policy="random", patch=8, progress=False)
    assert result.setting.goal == "multilabel"
    assert rlab.load(data).y.tolist() == [0, 1, 2, 3, 4]


def test_arrays_in_which_every_sample_has_one_label_suit_both_kinds_of_models(tmp_path: Path):
    x = np.random.default_rng(0).random((5, 5, 40), np.float32)
    np.savez(tmp_path / "one.npz", x=x, y=np.eye(5, dtype=np.int64))
    for options in ((), ("-M", "multilabel=true")):
        said = rlab_command("doctor", "my_models:logits", "one.npz", *options)
        assert ("goal multilabel" in " ".join(said.out.split())) == bool(options), said.out + said.err
