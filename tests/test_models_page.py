"""docs/models.md: every line of its table and every recipe runs, if what it needs is installed."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import rlab
from tests.helpers import real_package
from tests.test_readme import blocks_of
from tests.victims.makers import example_server, serving
from tests.victims.standins import Requests, X, create_app, expected
from tests.victims.tflite_file import tflite_file
from tests.victims.tiny_transformers import tiny_clip, tiny_sounds, tiny_video, tiny_vit

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
START, *SECTIONS = PAGE.read_text(encoding="utf-8").split("\n## ")
RECIPES = {text.splitlines()[0]: text for text in SECTIONS if "```" in text}
LONGEST = 10  # lines of a recipe
NEEDS = {  # by recipe; the others need what rlab needs
    "timm": "timm", "torchvision": "torchvision", "XGBoost": "xgboost", "LightGBM": "lightgbm", "Keras": "keras",
    "JAX": "jax", "Flax": "flax", "MONAI": "monai", "Lightning": "lightning", "ONNX": "onnx", "HTTP": "fastapi",
    "transformers, sounds": "transformers", "transformers, a pipeline": "transformers",
}  # fmt: skip
QUICK = {"ONNX", "HTTP"}  # the other packages take seconds to import


@dataclass(frozen=True)
class Row:
    model: str
    line: str
    recipe: str | None  # the section it links to

    @classmethod
    def of(cls, text: str) -> Row:
        model, line = (cell.strip() for cell in text.strip("| ").split(" | ")[:2])
        link = re.search(r"\[(.+)\]\(#(.+)\)", model)
        return cls(model, line.strip("`"), None if link is None else link[1])


ROWS = [Row.of(line) for line in START.splitlines() if line.startswith("|") and "rlab." in line]


def module() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()


def write_weights(folder: Path) -> None:
    save_file(module().state_dict(), folder / "weights.safetensors")
    (folder / "my_module.py").write_text("from tests.test_models_page import module as net\n")


def write_torchscript(folder: Path) -> None:
    torch.jit.trace(module(), torch.zeros(2, 1, 8, 8)).save(str(folder / "model.pt"))


def write_exported(folder: Path) -> None:
    torch.export.save(torch.export.export(module(), (torch.zeros(1, 1, 8, 8),)), folder / "model.pt2")


def write_tflite(folder: Path) -> None:
    real_package("ai_edge_litert")
    weight = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
    content = tflite_file(weight, np.zeros(10, np.float32), (8, 8, 1), -1, (1 / 255, 0))
    (folder / "model.tflite").write_bytes(content)


def write_openvino(folder: Path) -> None:
    openvino = real_package("openvino")
    torch.onnx.export(module(), (torch.zeros(1, 1, 8, 8),), folder / "model.onnx", dynamo=False)
    openvino.save_model(openvino.convert_model(folder / "model.onnx"), folder / "model.xml")


def write_timm(folder: Path) -> None:
    net = real_package("timm").create_model("resnet18", num_classes=10)
    save_file(net.state_dict(), folder / "timm.safetensors")


# What each line without a recipe finds in its folder. A published model is a tiny one of the same name there.
FILES: dict[str, Callable[[Path], None]] = {
    "weights and the function that builds the module": write_weights,
    "TorchScript": write_torchscript,
    "torch.export": write_exported,
    "TFLite, also with 8-bit inputs": write_tflite,
    "OpenVINO": write_openvino,
    "timm, your weights": write_timm,
    "transformers, images": tiny_vit,
    "transformers, video": tiny_video,
    "CLIP, with class names as prompts": tiny_clip,
    "a function that returns class numbers": lambda folder: None,
}
SERVED = ("kserve:", "tfserving:", "mlflow:")  # by a stand-in
DOWNLOADS = {"timm, published", "torchvision, published"}
SLOW = {
    "TorchScript",
    "torch.export",
    "OpenVINO",
    "timm, your weights",
    *(name for name in FILES if name.startswith(("trans", "CLIP"))),
}


def is_served(row: Row) -> bool:
    return any(protocol in row.line for protocol in SERVED)


def code_of(text: str) -> str:
    (block,) = blocks_of(text)
    return "\n".join(block.lines)


def length(recipe: str) -> int:
    return len([line for line in code_of(recipe).splitlines() if line.strip()])


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(example_server().create_app(rlab.demo_victim("digits"))) as address:
        yield address


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, no download, and none of the warnings of other packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "torch")
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_every_row_is_tested_and_every_recipe_has_a_row_of_few_lines() -> None:
    named = {row.model for row in ROWS if row.recipe is None and "untested" not in row.model and not is_served(row)}
    assert named == FILES.keys() | DOWNLOADS
    assert {row.recipe for row in ROWS if row.recipe} | {"Any of them, with objects"} == RECIPES.keys()
    assert NEEDS.keys() <= RECIPES.keys()
    assert {name: length(text) for name, text in RECIPES.items() if length(text) > LONGEST} == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row.recipe], ids=lambda row: row.recipe)
def test_a_line_with_a_recipe_is_its_last_line(row: Row) -> None:
    assert row.recipe is not None
    assert f"result = {row.line}" in code_of(RECIPES[row.recipe]).splitlines()


def checked(values: dict[str, Any], samples: int) -> None:
    result = values["result"]
    assert isinstance(result, rlab.AttackResult)
    assert len(result) == samples
    assert int(result.queries.sum()) >= len(result)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in NEEDS.keys() - QUICK else []) for name in RECIPES],
)
def test_a_recipe_runs(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name in NEEDS:
        real_package(NEEDS[name])
    if "transformers" in name:
        tiny_sounds(tmp_path)
        tiny_vit(tmp_path)
    code = code_of(RECIPES[name]).replace("pretrained=True", "pretrained=False").replace("budget=50", "budget=10")
    if "127.0.0.1:8000" in code:
        code = code.replace("http://127.0.0.1:8000", request.getfixturevalue("address"))
    values: dict[str, Any] = {}
    exec(code_of(START), values)
    exec(code, values)
    checked(values, len(values["sounds"] if "sounds" in values else values["batch"]))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.model, marks=[pytest.mark.slow] if row.model in SLOW else [])
        for row in ROWS
        if row.model in FILES
    ],
)
def test_a_line_runs_on_a_file(row: Row, tmp_path: Path) -> None:
    FILES[row.model](tmp_path)
    values: dict[str, Any] = {"predict": lambda x: x.mean((1, 2, 3)) > 0.3, "names": [f"digit {n}" for n in range(10)]}
    exec(code_of(START), values)
    clips = np.random.default_rng(0).uniform(size=(4, 3, 2, 8, 8)).astype(np.float32)
    values["clips"] = rlab.load((clips, np.arange(4)))
    if "clip:" in row.line or "hf:" in row.line:
        values["images"] = rlab.load((values["images"].x.numpy(), values["images"].y), classes=values["names"])
    exec(f"result = {row.line}".replace("budget=50", "budget=10"), values)
    checked(values, len(values["clips"] if "clips" in row.line else values["batch"]))


@pytest.mark.parametrize("row", [row for row in ROWS if is_served(row)], ids=lambda row: row.line.split('"')[1])
def test_a_line_runs_on_a_server(row: Row) -> None:
    with serving(create_app(Requests())) as address:
        values: dict[str, Any] = {"rlab": rlab, "batch": rlab.load((X, expected(X).argmax(1)))}
        exec("result = " + re.sub(r"127.0.0.1:\d+", address.partition("://")[2], row.line), values)
    checked(values, len(X))


def test_an_onnx_file_of_this_page_has_one_input(tmp_path: Path) -> None:
    """The exporter that the recipe uses still exists."""
    exec(code_of(RECIPES["ONNX"]).rpartition("\n")[0])
    assert len(onnx.load("model.onnx").graph.input) == 1
