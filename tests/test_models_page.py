"""The recipes of docs/models.md are short, and run if their packages are installed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlab
from tests.test_readme import blocks_of
from tests.victims.makers import example_server, serving

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
START, *RECIPES = PAGE.read_text(encoding="utf-8").split("\n## ")
LONGEST = 5  # lines of a recipe
NEEDS = {  # by recipe; the others need what rlab needs
    "timm": "timm", "torchvision": "torchvision", "XGBoost": "xgboost", "Keras": "keras", "JAX": "jax", "ONNX": "onnx",
    "HTTP": "fastapi",
}  # fmt: skip


def code_of(text: str) -> str:
    (block,) = blocks_of(text)
    return "\n".join(block.lines)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(example_server().create_app(rlab.demo_victim("digits"))) as address:
        yield address


def test_the_page_has_every_kind_of_model_in_five_lines() -> None:
    names = [recipe.splitlines()[0] for recipe in RECIPES]
    assert {"PyTorch", "scikit-learn", "A Python function", *NEEDS} <= set(names)
    assert {name: count for name, count in zip(names, map(length, RECIPES), strict=True) if count > LONGEST} == {}


def length(recipe: str) -> int:
    return len([line for line in code_of(recipe).splitlines() if line.strip()])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.splitlines()[0])
def test_a_recipe_runs(
    recipe: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = NEEDS.get(recipe.splitlines()[0])
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    code = code_of(recipe).replace("pretrained=True", "pretrained=False")  # nothing is downloaded
    if "127.0.0.1:8000" in code:
        code = code.replace("http://127.0.0.1:8000", request.getfixturevalue("address"))
    values: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code_of(START), values)
        exec(code, values)
    result = values["result"]
    assert isinstance(result, rlab.AttackResult)
    assert len(result) == len(values["batch"])
    assert int(result.queries.sum()) >= len(result)
