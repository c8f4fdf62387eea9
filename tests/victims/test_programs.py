"""TorchScript and torch.export files: what they compute, and that nothing in them runs that is not an operator on tensors."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
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
    victim = load_victim(str(tmp_path / "model.pt2"), device="cpu")
    for rows in (7, 4, 1):
        assert torch.allclose(victim(inputs(2, rows)), linear().scores(inputs(2, rows)), atol=1e-5)
    assert victim.rows == {"search": 12}


@pytest.mark.parametrize("name", ["model.pt", "model.ts", "model.torchscript"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript(tmp_path: Path, name: str) -> None:
    torch.jit.trace(plain(), inputs(2)).save(str(tmp_path / name))
    victim = load_victim(str(tmp_path / name), mean=0.5, std=0.5)
    assert torch.allclose(victim(inputs(2, 5)), linear().scores((inputs(2, 5) - 0.5) / 0.5), atol=1e-4)


class Writes(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3] + torch.from_file(self.path, True, 8)[:3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_program_that_writes_files_is_refused(tmp_path: Path) -> None:
    torch.jit.script(Writes(str(tmp_path / "written"))).save(str(tmp_path / "model.pt"))
    with pytest.raises(InputError, match="from_file"):
        load_victim(str(tmp_path / "model.pt"))
    assert not (tmp_path / "written").exists()


class Bomb:
    """A pickle that leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


Change = Callable[[dict[str, bytes], Path], None]


def pickled_inputs(parts: dict[str, bytes], mark: Path) -> None:
    file = io.BytesIO()
    torch.save(Bomb(mark), file)
    parts["data/sample_inputs/model.pt"] = file.getvalue()


def pickled_weight(parts: dict[str, bytes], mark: Path, flag: object = True) -> None:
    file = io.BytesIO()
    torch.save(Bomb(mark), file)
    about = json.loads(parts["data/weights/model_weights_config.json"])
    about["config"]["weight"]["use_pickle"] = flag
    parts["data/weights/model_weights_config.json"] = json.dumps(about).encode()
    parts["data/weights/weight_0"] = file.getvalue()


def opaque_constant(parts: dict[str, bytes], mark: Path) -> None:
    about = {
        "config": {"c": {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": None}}
    }
    parts["data/constants/model_constants_config.json"] = json.dumps(about).encode()
    parts["data/constants/opaque_obj_0"] = pickle.dumps(Bomb(mark))


def replaced(old: str, new: str) -> Change:
    def change(parts: dict[str, bytes], mark: Path) -> None:
        text = parts["models/model.json"].decode()
        assert old in text
        parts["models/model.json"] = text.replace(old, new.format(mark)).encode()

    return change


def library(parts: dict[str, bytes], mark: Path) -> None:
    parts["data/aotinductor/model/model.so"] = b"code"


SYMBOL = "Symbol('s"
CHANGES: dict[str, Change] = {
    "pickled inputs": pickled_inputs,
    "a pickled weight": pickled_weight,
    "a pickled weight, flagged oddly": lambda parts, mark: pickled_weight(parts, mark, {"yes": 1}),
    "a pickled constant": opaque_constant,
    "a library": library,
    "a function of Python": replaced("torch.ops.aten.add.Tensor", "torch.os.system"),
    "an operator on files": replaced("torch.ops.aten.add.Tensor", "torch.ops.aten.from_file.default"),
    "an expression": replaced(SYMBOL, "__import__('pathlib').Path('{}').touch() or Symbol('s"),
    "a name that is code": replaced('"name": "x"', '"name": "x=__import__(\'os\')"'),
    "a factory of values": replaced("builtins.tuple", "collections.defaultdict"),
    "no JSON": lambda parts, mark: parts.update({"models/model.json": b"{"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_an_exported_program_that_could_run_code_is_refused(tmp_path: Path, name: str) -> None:
    mark, path = tmp_path / "mark", tmp_path / "model.pt2"
    with zipfile.ZipFile(io.BytesIO(exported())) as archive:
        parts = {each.partition("/")[2]: archive.read(each) for each in archive.namelist()}
    CHANGES[name](parts, mark)
    with zipfile.ZipFile(path, "w") as archive:
        for part, content in parts.items():
            archive.writestr(f"model/{part}", content)
    with pytest.raises(InputError) as caught:
        load_victim(str(path))
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.slow
def test_two_parts_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(exported())
    with zipfile.ZipFile(tmp_path / "model.pt2", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(archive.namelist()[0], b"again")
    with pytest.raises(InputError, match="same name"):
        load_victim(str(tmp_path / "model.pt2"))


@pytest.mark.parametrize("name", ["model.pt2", "model.ts", "model.pt"])
def test_a_pickle_by_another_name_is_never_opened(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    with pytest.raises(InputError):
        load_victim(str(tmp_path / name))
    torch.save(Bomb(tmp_path / "mark"), tmp_path / name)
    with pytest.raises(InputError):
        load_victim(str(tmp_path / name))
    assert not (tmp_path / "mark").exists()
