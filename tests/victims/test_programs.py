"""TorchScript and torch.export files: what they compute, and that they load only if the user trusts them."""

from __future__ import annotations

import io
import pickle
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlab.errors import InputError
from rlab.victims.resolve import load_victim
from tests.victims.makers import CHANNELS, SIZES, LinearModule, inputs, linear


class Plain(LinearModule):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight + self.bias


def plain() -> nn.Module:
    return Plain(linear()).eval()


@cache
def exported(free: bool = True, rows: int = 4) -> bytes:
    file, x = io.BytesIO(), torch.zeros(rows, CHANNELS, *SIZES[2])
    shapes = ({0: torch.export.Dim("rows", min=1, max=1024)},) if free else None
    torch.export.save(torch.export.export(plain(), (x,), dynamic_shapes=shapes), file)
    return file.getvalue()


@pytest.mark.slow  # torch takes seconds to import what it exports with
@pytest.mark.parametrize("free", [True, False])
def test_an_exported_program(tmp_path: Path, free: bool) -> None:
    """With a fixed number of rows, batches are filled up."""
    (tmp_path / "model.pt2").write_bytes(exported(free))
    victim = load_victim(str(tmp_path / "model.pt2"), device="cpu", trust=True)
    for rows in (7, 4, 1):
        assert torch.allclose(victim(inputs(2, rows)), linear().scores(inputs(2, rows)), atol=1e-5)
    assert victim.rows == {"search": 12}


@pytest.mark.parametrize("name", ["model.pt", "model.ts", "model.torchscript"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript(tmp_path: Path, name: str) -> None:
    torch.jit.trace(plain(), inputs(2)).save(str(tmp_path / name))
    victim = load_victim(str(tmp_path / name), mean=0.5, std=0.5, trust=True)
    assert torch.allclose(victim(inputs(2, 5)), linear().scores((inputs(2, 5) - 0.5) / 0.5), atol=1e-4)


class Bomb:
    """A pickle that leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["model.pt2", "model.ts", "model.pt"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_is_refused_without_trust(tmp_path: Path, name: str) -> None:
    torch.jit.trace(plain(), inputs(2)).save(str(tmp_path / name))
    with pytest.raises(InputError, match=r"is a program.*trust=True \(-M trust=true\)"):
        load_victim(str(tmp_path / name))


@pytest.mark.parametrize("name", ["model.pt2", "model.ts", "model.pt"])
def test_a_pickle_by_another_name_is_never_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    with pytest.raises(InputError):
        load_victim(str(tmp_path / name))
    torch.save(Bomb(tmp_path / "mark"), tmp_path / name)
    with pytest.raises(InputError):
        load_victim(str(tmp_path / name))
    assert not (tmp_path / "mark").exists()
