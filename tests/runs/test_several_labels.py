"""Whether records have one label or several follows from the model and the data, is printed, and a mismatch names the option."""

from __future__ import annotations

from pathlib import Path

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
