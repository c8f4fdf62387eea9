"""Weights from files, which never run code."""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save as to_bytes
from safetensors.torch import save_file
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.victims.weights import load_weights


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def without_counts(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """As older versions of torch saved batch normalisation."""
    return {key: value for key, value in state.items() if "num_batches" not in key}


def parallel(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"module.{key}": value for key, value in state.items()}


LOADED: list[tuple[str, Callable[[dict[str, Tensor]], Any]]] = [
    ("w.safetensors", dict),
    ("w.safetensors", without_counts),
    ("w.pt", dict),
    ("w.pth", lambda state: {"state_dict": state, "epoch": 3}),
    ("w.pth", lambda state: {"model": state}),
    ("w.pth", parallel),
    ("w.pth", lambda state: {"state_dict": parallel(state)}),
]


@pytest.mark.parametrize(("name", "wrap"), LOADED)
def test_state_dicts_load_as_training_scripts_save_them(
    tmp_path: Path, name: str, wrap: Callable[[dict[str, Tensor]], Any]
) -> None:
    trained = model()
    (save_file if name.endswith("safetensors") else torch.save)(wrap(trained.state_dict()), tmp_path / name)
    loaded = load_weights(model(), tmp_path / name).state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in trained.state_dict().items())


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


def spoiled(change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    state = model().state_dict()
    return state | {"0.weight": change(state["0.weight"])}


FAULTS: dict[str, tuple[object, str]] = {  # what torch.save stores, or bytes; words of the error
    "NaN": (spoiled(lambda tensor: tensor * float("nan")), "0.weight"),
    "half NaN": (spoiled(lambda tensor: tensor.half().fill_(float("nan"))), "0.weight"),
    "complex": (spoiled(lambda tensor: tensor.to(torch.complex64)), "0.weight"),
    "meta": (spoiled(lambda tensor: tensor.to("meta")), "0.weight"),
    "sparse": (spoiled(lambda tensor: tensor.to_sparse()), "0.weight"),
    "numbered": ({1: torch.zeros(2)}, "state dict"),
    "no weights": ({}, "state dict"),
    "a list": ([torch.zeros(2)], "state dict"),
    "a tensor": (torch.zeros(2), "state dict"),
    "a number": ({"a": 1}, "state dict"),
    "other names": ({"extra": torch.zeros(1), "2.bias": torch.zeros(3)}, "lacks 0.weight, 0.bias, 1.weight and"),
    "unknown names": ({**model().state_dict(), "extra": torch.zeros(1)}, "unknown extra"),
    "other shapes": ({**model().state_dict(), "2.bias": torch.zeros(7)}, "size mismatch for 2.bias"),
    "a model": (model(), "pickle"),
    "a trap": (Trap(), "pickle"),
    "a plain trap": (pickle.dumps(Trap()), "pickle"),
    "garbage": (b"no weights in here, none at all", "w.pt"),
    "empty": (b"", "cannot read"),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", FAULTS)
def test_faulty_files_are_refused_and_run_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    content, words = FAULTS[name]
    if isinstance(content, bytes):
        Path("w.pt").write_bytes(content)
    else:
        torch.save(content, "w.pt")
    with pytest.raises(InputError) as caught:
        load_weights(model(), Path("w.pt"))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("sprung").exists()


@pytest.mark.parametrize(
    ("name", "words"), [("w.h5", "safetensors"), ("none.pt", "no such file"), ("bad.safetensors", "cannot read")]
)
def test_other_files_are_refused(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "w.h5").touch()
    (tmp_path / "bad.safetensors").write_bytes(b"no weights")
    with pytest.raises(InputError, match=words):
        load_weights(model(), tmp_path / name)


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans(), kind=st.integers(0, 2))
def test_damaged_weights_load_or_are_refused(place: float, byte: int, cut: bool, kind: int) -> None:
    whole = stored_weights()[kind]
    at = int(place * len(whole))
    damaged = whole[:at] if cut else whole[:at] + bytes([byte]) + whole[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w.safetensors" if kind == 0 else "w.pt")
        path.write_bytes(damaged)
        with suppress(InputError):
            load_weights(model(), path)


@cache
def stored_weights() -> tuple[bytes, bytes, bytes]:
    """As safetensors, and in the new and the old format of torch."""
    new, old = io.BytesIO(), io.BytesIO()
    torch.save(model().state_dict(), new)
    torch.save(model().state_dict(), old, _use_new_zipfile_serialization=False)
    return to_bytes(model().state_dict()), new.getvalue(), old.getvalue()
