"""The notebooks in examples/ run unchanged, and the last value of a cell displays as HTML."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from rlab.results.result import AttackResult
from tests.test_project import ROOT

KINDS = {"image": "runs/images", "ecg": "runs/beats", "video": "runs/clips"}
SHOWN = ["Batch", "AttackResult", "Explanation", "MethodComparison", "Comparison"]


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, as a notebook does."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["image", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ecg", "video"))])
def test_a_notebook_for_each_kind_of_data_runs_and_displays_its_results(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / f"{kind}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "notebook"}
    values = [value for cell in code if (value := run_cell(cell, names)) is not None]
    shown = [value for value in values if hasattr(value, "_repr_html_")]
    assert [type(value).__name__ for value in shown] == SHOWN
    assert all("<figure" in value._repr_html_() for value in shown)
    assert len(AttackResult.load(KINDS[kind])) == len(shown[0])
    assert [cell["outputs"] for cell in cells if cell["cell_type"] == "code"] == [[] for _ in code]


@pytest.mark.slow
def test_the_first_steps_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            run_cell("".join(cell["source"]), names)
            assert cell["outputs"] == []
    assert names["result"].succeeded.any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_in_a_separate_kernel(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    notebook = nbformat.read(ROOT / "examples" / f"{kind}.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    # progress bars are displayed beside the results
    shown = [output for output in outputs if output.output_type == "execute_result"]
    assert sum("text/html" in output["data"] for output in shown) == len(SHOWN)
    assert [output for output in outputs if output.output_type == "error"] == []
