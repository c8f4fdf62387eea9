"""Modules in a data folder are not imported; modules that the user names on the command line are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Python itself imports these for `-m` before it finds rlab.
BEFORE_US = {
    "importlib",
    "warnings",
    "contextlib",
    "collections",
    "keyword",
    "operator",
    "reprlib",
    "functools",
    "types",
}
OTHERS = {"torch", "numpy", "yaml", "pydantic", "typer", "rich", "pyarrow", "safetensors", "matplotlib"}
MINE = """
import json, helper_of_mine
def model():
    assert hasattr(json, "loads")
    return lambda x: helper_of_mine.scores(x)
"""


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """Create a folder with a module for every name that rlab could import."""
    for name in (sys.stdlib_module_names | OTHERS) - BEFORE_US:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'marker')!r}, 'a').write(__name__)\nraise SystemExit(9)\n"
        )
    return tmp_path


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


def test_a_module_of_the_folder_does_not_replace_an_installed_one(strange: Path) -> None:
    (strange / "my_model.py").write_text(MINE)
    (strange / "helper_of_mine.py").write_text("def scores(x):\n    return x.reshape(len(x), -1)[:, :10] + 0.5\n")
    words = ("doctor", "my_model:model", "demo:digits", "--limit", "4", "--samples", "2", "-p", "dead_pixel")
    shown = python(strange, "-m", "rlab", *words)
    assert shown.returncode in (0, 1), shown.stderr  # the doctor may find problems
    assert "No problems found" in shown.stdout
    assert not (strange / "marker").exists()


def test_importing_rlab_does_not_change_the_path(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys\nbefore = list(sys.path)\nimport rlab\nassert sys.path == before\n")
    for words in (("mine.py",), ("-m", "mine"), ("-c", "import mine")):
        assert python(tmp_path, *words).returncode == 0
