from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rlab.errors import InputError
from rlab.victims.weights import load_weights, read_state_dict


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_safetensors_and_torch_state_dicts_load(tmp_path: Path) -> None:
    trained = model()
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    torch.save(trained.state_dict(), tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        assert same(load_weights(model(), tmp_path / name), trained)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state},
        lambda state: {f"module.{key}": value for key, value in state.items()},
        lambda state: {"state_dict": {f"module.{key}": value for key, value in state.items()}},
    ],
)
def test_what_training_scripts_wrap_around_a_state_dict_is_taken_off(tmp_path: Path, wrap: Any) -> None:
    trained = model()
    torch.save(wrap(trained.state_dict()), tmp_path / "w.pth")
    assert same(load_weights(model(), tmp_path / "w.pth"), trained)


def test_weights_without_batch_counts_load_as_older_files_have_them(tmp_path: Path) -> None:
    trained = model()
    state = {key: value for key, value in trained.state_dict().items() if "num_batches" not in key}
    save_file(state, tmp_path / "w.safetensors")
    assert same(load_weights(model(), tmp_path / "w.safetensors"), trained)


def test_weights_that_do_not_fit_name_the_first_few(tmp_path: Path) -> None:
    state = model().state_dict()
    save_file({"extra": torch.zeros(1), "2.bias": state["2.bias"]}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"lacks 0.weight, 0.bias, 1.weight and \d more and has besides extra$"):
        load_weights(model(), tmp_path / "w.safetensors")
    save_file({**state, "2.bias": torch.zeros(7)}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"does not fit the model: size mismatch for 2.bias"):
        load_weights(model(), tmp_path / "w.safetensors")


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_pickled_models_are_refused_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(model(), "whole.pt")
    torch.save(Trap(), "trap.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("whole.pt", "trap.pt", "plain.pt"):
        with pytest.raises(
            InputError, match=r"pickled model, .* save its state dict as safetensors and name a factory"
        ):
            read_state_dict(Path(name))
    assert not Path("sprung").exists()


@pytest.mark.parametrize("name", ["bad.safetensors", "bad.pt", "empty.pt"])
def test_broken_files_are_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"" if name == "empty.pt" else b"no weights in here, none at all")
    with pytest.raises(InputError) as caught:
        read_state_dict(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    with pytest.raises(InputError, match="expected a state dict of tensors"):
        read_state_dict(tmp_path / "tensor.pt")
    (tmp_path / "w.h5").touch()
    with pytest.raises(InputError, match=r"expected weights as .safetensors"):
        read_state_dict(tmp_path / "w.h5")
    with pytest.raises(InputError, match="no such file"):
        read_state_dict(tmp_path / "none.pt")
