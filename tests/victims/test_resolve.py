"""Naming a model as people do on the command line."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from safetensors.torch import save_file

from rlab.errors import InputError, VictimError
from rlab.victims import CallableVictim, HttpVictim, OnnxVictim, SklearnVictim, TorchVictim
from rlab.victims.resolve import load_victim
from tests.victims.makers import inputs, linear, onnx_graph

SOURCE = """
import numpy as np, torch
from sklearn.linear_model import LogisticRegression
from rlab.victims import CallableVictim
class Nest:
    @staticmethod
    def net(): return net()
def net(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
def function(): return lambda x: x.reshape(len(x), -1)[:, :3]
def ready(): return CallableVictim(function(), bounds=(0, 2))
def forest(): return LogisticRegression().fit(np.random.rand(9, 12), np.arange(9) % 3)
def number(): return 3
def fails(): raise KeyError("lost")
def wants(path): return net()
value = 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name no other test has used."""
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("net", TorchVictim),
        ("Nest.net", TorchVictim),
        ("function", CallableVictim),
        ("ready", CallableVictim),
        ("forest", SklearnVictim),
    ],
)
def test_a_function_of_the_current_folder_returns_the_model(mine: str, function: str, kind: type) -> None:
    victim = load_victim(f"{mine}:{function}")
    assert type(victim) is kind
    assert victim(inputs(2)).shape == (7, 3)
    assert victim.bounds == ((0, 2) if function == "ready" else (0, 1))


def test_options_reach_the_victim(mine: str) -> None:
    victim = load_victim(
        f"{mine}:net", mean=0.5, std=(0.2, 0.3), bounds=(-1, 1), outputs="logits", multilabel=True, chunk=5,
        layout="frames_first", autocast=True, device="cpu",
    )  # fmt: skip
    assert isinstance(victim, TorchVictim)
    assert (victim.bounds, victim.outputs, victim.multilabel, victim.chunk) == ((-1, 1), "logits", True, 5)
    assert (victim.reading.layout, victim.autocast, victim.device) == ("frames_first", True, torch.device("cpu"))
    assert victim.reading.normalise is not None
    assert victim.reading.normalise.std == (0.2, 0.3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("MINE:net", {"factory": "a:b"}),
        ("MINE:function", {"device": "cpu", "autocast": True}),
        ("MINE:ready", {"mean": 0.5}),
        ("http://host", {"mean": 0.5, "layout": "channels_last"}),
        ("http://host", {"device": "cuda"}),
        ("linear.onnx", {"weights": "w.pt"}),
    ],
)
def test_options_without_effect_are_refused(mine: str, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"does not take {', '.join(options)}"):
        load_victim(name.replace("MINE", mine), **options)


def test_a_ready_victim_takes_a_chunk_and_its_own_bounds(mine: str) -> None:
    assert load_victim(f"{mine}:ready", chunk=9, bounds=(0, 2)).chunk == 9
    with pytest.raises(InputError, match=r"\[0.0, 2.0\], not \[0.0, 1.0\]"):
        load_victim(f"{mine}:ready", bounds=(0, 1))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("MINE:number", "got int"),
        ("MINE:fails", r"fails\(\) failed: KeyError: 'lost'"),
        ("MINE:wants", r"wants\(\) failed: TypeError: .*; it is called without arguments and returns the model"),
        ("MINE:value", "got int"),
        ("MINE:absent", "no attribute 'absent'"),
        ("no_such_module:net", "No module named 'no_such_module'"),
        ("broken:net", "broken: ZeroDivisionError"),
        ("resnet50", "'resnet50': expected module:function, timm:NAME"),
        ("", "unknown kind of model ''"),
        ("model.h5", "'model.h5'"),
        ("none.onnx", "no such file: none.onnx"),
        ("none.safetensors", "no such file: none.safetensors"),
        ("model.pkl", "is a pickle.*safetensors"),
        ("model.joblib", "is a pickle"),
        ("folder/model.PICKLE", "is a pickle"),
        ("demo:cats", "digits, ecg, clips"),
        ("http://", "http://host:8000/predict"),
    ],
)
def test_what_cannot_be_loaded_is_a_one_line_error(mine: str, spec: str, said: str) -> None:
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(InputError, match=said) as caught:
        load_victim(spec.replace("MINE", mine))
    assert "\n" not in str(caught.value)


def test_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "linear.onnx"
    onnx.save(onnx_graph(linear(), 2), path)
    victim = load_victim(str(path), mean=0.0, std=1.0, chunk=2)
    assert isinstance(victim, OnnxVictim)
    assert torch.allclose(victim(inputs(2)), linear().scores(inputs(2)), atol=1e-5)
    with pytest.raises(InputError, match="CUDAExecutionProvider"):
        load_victim(str(path), device="cuda")


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_state_dict_with_a_factory(mine: str, suffix: str) -> None:
    trained = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    save_file(trained.state_dict(), "w.safetensors")
    torch.save(trained.state_dict(), "w.pt")
    x = inputs(2)
    for victim in (
        load_victim(f"w.{suffix}", factory=f"{mine}:net"),
        load_victim(f"{mine}:net", weights=f"w.{suffix}"),
    ):
        assert torch.allclose(victim(x), trained(x).log_softmax(1), atol=1e-6)


def test_a_state_dict_needs_a_factory(mine: str) -> None:
    save_file({"1.weight": torch.zeros(3, 12)}, "w.safetensors")
    with pytest.raises(InputError, match="factory="):
        load_victim("w.safetensors")
    with pytest.raises(InputError, match="got int"):
        load_victim("w.safetensors", factory=f"{mine}:number")


def test_an_address() -> None:
    victim = load_victim("https://127.0.0.1:9/predict", chunk=7, template="npy", timeout=0.2, retries=0)
    assert isinstance(victim, HttpVictim)
    assert (victim.chunk, victim.template.body, victim.timeout, victim.retries) == (7, "{npy}", 0.2, 0)
    with pytest.raises(VictimError, match="could not be reached"):
        victim(inputs(2))
    with pytest.raises(InputError, match="no longer has the keyword 'http'"):
        load_victim("http://host", http={"retries": 0})


def test_a_demo_model_by_name() -> None:
    victim = load_victim("demo:digits", chunk=3, device="cpu")
    assert isinstance(victim, TorchVictim)
    assert victim.chunk == 3
    assert victim(torch.rand(4, 1, 8, 8)).shape == (4, 10)
    with pytest.raises(InputError, match=r"not \[0.0, inf\]"):
        load_victim("demo:digits", bounds=(0, math.inf))
